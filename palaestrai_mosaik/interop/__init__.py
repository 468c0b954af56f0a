"""palaestrAI, Gymnasium, PettingZoo and mosaik scripts: their parts here, and ours there."""
