"""Run documents as environments of Gymnasium and PettingZoo; mosaik schedules inside."""
