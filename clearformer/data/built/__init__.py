"""Data that is tokenised once, into shards of memory-mapped safetensors, and trained on many times.

FOLDER/built.json                 the index, written last: a folder with it is complete
      /building.json              what is being built, so that a second start continues only the same work
      /tokenizer.json             or source.tokenizer.json and target.tokenizer.json
      /train-00000.safetensors    pairs or documents, as in store.py; one shard for every SHARD_ROWS lines
      /train-00000.json           the counts of the shard, and the texts of its held-out pairs
      /lengths.safetensors        the length of every pair, so that an epoch is planned without opening a shard
      /valid.safetensors …        the other splits, as in a run folder
"""
