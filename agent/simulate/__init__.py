"""A fleet by simulation: a stream of pods over many nodes, decided as the daemon decides.

Pure: `spec` reads what is asked (`fleet.Fleet`), `stream` draws the pods, `cell` places them on some of the
nodes under one variant of the settings, `report` adds up and words it, `chart` draws it. Randomness is passed
in; same fleet, same results, however many processes share the cells.
"""
