"""The description of this gateway's own HTTP interface, as OpenAPI 3.1."""
