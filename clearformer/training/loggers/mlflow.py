"""MLflow: parameters from the recipe, metrics by step, and the test metrics at the end.

MLflow decides where they go: MLFLOW_TRACKING_URI or mlflow.set_tracking_uri, by default ./mlflow.db;
and MLFLOW_EXPERIMENT_NAME or mlflow.set_experiment. A run that is active already is used, and not ended.
"""

from collections.abc import Mapping
from typing import Any

from clearformer.training.loggers import Logger, RunFacts, flat, library, numbers

LONGEST = 500  # characters of a parameter that every version of MLflow accepts
BATCH = 100  # parameters per request


class MLflowLogger(Logger):
    is_append_only = True

    def __init__(self) -> None:
        self.mlflow = library("mlflow", "mlflow")
        self.id, self.is_owner = "", True

    def begin(self, run: RunFacts) -> str:
        active = self.mlflow.active_run()
        self.is_owner = active is None
        active = active or self.continued(run.id) or self.mlflow.start_run(run_name=run.folder.resolve().name)
        self.id = active.info.run_id
        self.mlflow.set_tag("clearformer.run", str(run.folder.resolve()))
        known = active.data.params  # a parameter cannot be changed later
        texts = {key: str(value)[:LONGEST] for key, value in flat(run.recipe).items() if key not in known}
        keys = list(texts)
        for first in range(0, len(keys), BATCH):
            self.mlflow.log_params({key: texts[key] for key in keys[first : first + BATCH]})
        return self.id

    def continued(self, run_id: str | None) -> Any:
        """Continue a run. Returns None if there is no such run, for example in the database of another machine."""
        if run_id is None:
            return None
        try:
            return self.mlflow.start_run(run_id=run_id)
        except self.mlflow.MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.mlflow.log_metrics(dict(metrics), step=step, synchronous=True, run_id=self.id)

    def end(self, report: Mapping[str, Any] | None) -> None:
        if report is not None and (tests := numbers(report.get("test", {}), "test/")):
            self.log(report["steps"], tests)
        if not self.is_owner:
            return
        status, active = "KILLED" if report is None else "FINISHED", self.mlflow.active_run()
        if active is not None and active.info.run_id == self.id:
            self.mlflow.end_run(status)
        else:  # ended by the caller, or in another thread
            self.mlflow.MlflowClient().set_terminated(self.id, status)
