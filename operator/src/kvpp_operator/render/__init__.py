"""Plan → manifests. Structure is a literal dict; files that a container reads are jinja2 templates."""
