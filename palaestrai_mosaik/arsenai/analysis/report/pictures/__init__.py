"""The pictures of a report: drawn by matplotlib, kept as SVG elements of the page."""
