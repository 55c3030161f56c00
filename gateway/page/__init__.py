"""The page that the gateway serves at `/`: plain HTML, CSS and ES modules, as they are."""
