"""Mosaik scenarios of users get agents with a few lines."""
