"""The verbs of the command line as Python functions: one file a verb, with the same name in cli/.

    report = clearformer.train(pairs="pairs.tsv", out="runs/mine")
    scores = clearformer.evaluate(report["run"], "test.tsv")

`settings` are "table.key=value", as --set takes them. A mistake that the user can mend raises a ClearformerError.
"""
