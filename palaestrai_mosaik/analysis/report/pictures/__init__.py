"""The pictures of a report: drawn by matplotlib, kept as SVG that is part of the page."""
