"""What a training will need, before it starts: memory by part, time per step, and what would make it fit.

    recipe ──rehearsal──▶ a step of the real trainer on tensors without memory ──ledger──▶ allocations and operations
                              allocations ──heap──▶ peak memory          operations ──clocks──▶ seconds per step

No architecture has a formula here: the model, the objective, the optimiser and the trainer run as they are.
"""
