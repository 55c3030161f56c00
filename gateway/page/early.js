// Runs before the page is drawn: a dark page must not begin with a white flash.
try {
  const theme = localStorage.getItem("outpace.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // No storage: the system's theme.
}
