"""What a store holds of its newest run, as JSON: ``read_results.py STORE``.

``rows``: of all agents; ``digest``: of their trajectories, without wall-clock times. A store that is not
there yet is made.
"""

import hashlib
import json
import sys

from palaestrai_mosaik.store import Store

with Store(sys.argv[1], create=True) as store:
    runs = store.runs()
    found = {"status": "none", "rows": 0, "digest": ""}
    if len(runs):
        newest = runs.iloc[-1]
        steps = store.steps(str(newest["run"])) if newest["phases"] else []
        found = {"status": str(newest["status"]), "rows": len(steps), "digest": ""}
        if len(steps):
            found["digest"] = hashlib.sha256(steps.to_csv(index=False).encode()).hexdigest()
print(json.dumps(found))
