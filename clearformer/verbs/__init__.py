"""What the command line does, as functions.

    report = clearformer.train(pairs="pairs.tsv", out="runs/mine")
    scores = clearformer.evaluate(report["run"], "test.tsv")

training     plan, train, finetune
evaluation   evaluate: pairs, text, labels, images, speech
reading      classify, embed, transcribe: what a model says of texts, pictures or recordings
generation   generate, score, fill, repair: what it writes, and how likely it finds what others wrote
corpora      the files that a user names, as a recipe's [data] names them

A corpus is one .tsv, .txt or .jsonl file, or two line-aligned files as a tuple. `settings` are "table.key=value", as
--set takes them. Whatever a user can mend raises a ClearformerError.
"""
