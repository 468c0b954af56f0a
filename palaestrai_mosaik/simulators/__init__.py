"""Simulators of this package for any mosaik scenario, with or without agents.

============================================================ ========================= ==========================
``python``                                                   over TCP                  public model
============================================================ ========================= ==========================
``palaestrai_mosaik.simulators.power_flow:PowerFlow``        ``power-flow``            ``Grid``, with its elements
``palaestrai_mosaik.simulators.profiles:Profiles``           ``profiles``              ``Profiles``, with elements
``palaestrai_mosaik.simulators.storage:Storage``             ``storage``               ``Battery``
``palaestrai_mosaik.simulators.pv:PV``                       ``pv``                    ``PV``
============================================================ ========================= ==========================

Over TCP: ``{"cmd": "%(python)s -m palaestrai_mosaik.simulators power-flow %(addr)s"}``. All are
*time-based*: they step themselves, every ``step_size`` ticks; one tick is ``time_resolution`` seconds.
Where several entities feed one input, their values are added. Power is in MW and Mvar, voltage in
p.u. Power flow and profiles need the extra ``grid``.
"""
