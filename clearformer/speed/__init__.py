"""Measure the speed of this package beside other libraries, on the machine at hand: the code of `clearformer bench`.

    rows.py        what is measured: one row per work, with our side and its peers
    runner.py      take turns: each side runs in a separate process, several times; medians and ranges
    worker.py      the separate process: one call, one JSON object
    here.py        our side, by the public commands and handles
    peers/         the other side: one small file per library
    ceilings.py    what the machine reaches without any library: matrix products, memory, dispatch
    models.py      random weights that every library reads       corpora.py, batches.py    data that every library reads
    table.py       the results as a table

Nothing here is imported by the rest of the package, and peers never import our models.
"""
