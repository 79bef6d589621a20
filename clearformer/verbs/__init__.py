"""The verbs of the command line as Python functions: one file per verb, with the same name as in cli/.

    report = clearformer.train(pairs="pairs.tsv", out="runs/mine")
    metrics = clearformer.evaluate(report["run"], "test.tsv")

`settings` are strings "table.key=value", as for --set, or a dictionary. A user error raises a ClearformerError.
"""
