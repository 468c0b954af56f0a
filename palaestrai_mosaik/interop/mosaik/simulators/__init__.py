"""The simulators that :mod:`palaestrai_mosaik.simulators` offers."""
