"""Co-simulation of agents and environments on mosaik, from one YAML document."""

__version__ = "0.1.0"
