"""The contract of jobs, as a test class to inherit from.

    from zstore.testing.jobs import JobContract

    class TestPeaks(JobContract):
        name = "acme-peaks"

        def arguments(self, place):
            zstore.create_array(place / "source", data=np.arange(400).reshape(80, 5), chunks=(2, 2))
            return {"source": str(place / "source"), "target": str(place / "target")}

        def outcome(self, place):
            return (place / "target" / "peaks.json").read_bytes()

The package must be installed, for zstore to find the job by its name.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import zstore
from zstore.errors import ZstoreError
from zstore.extensions.registry import jobs
from zstore.plugin.jobs import Estimate, refused
from zstore.testing.contract import Contract, needs

__all__ = ["JobContract"]

# A value of each word that is not its default.
VALUES: dict[str, Any] = {
    "memory": 1 << 30,
    "executor": None,
    "durable": True,
    "progress": lambda done, total: None,
    "resume": True,
    "overwrite": True,
    "dry_run": True,
    "if_exists": "skip",
}


class _Interrupted(Exception):
    """Raised by `progress`, as Ctrl-C would be."""


class _Elsewhere:
    """An executor that sends each unit through pickle, as one with other processes does."""

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            function, args = pickle.loads(pickle.dumps((function, args)))
            future.set_result(pickle.loads(pickle.dumps(function(*args))))
        except BaseException as error:
            future.set_exception(error)
        return future


class JobContract(Contract):
    """The tests of a job: inherit and define `name`, `arguments` and `outcome`.

    A job that cannot be made in parts by several calls sets `has_parts = False`.
    """

    name: str
    has_parts = True

    def arguments(self, place: Path) -> Mapping[str, Any]:
        """The arguments of a small job by name: a new source and the target, below `place`."""
        raise NotImplementedError

    def outcome(self, place: Path) -> Any:
        """The result of the job below `place`, as a value that can be compared."""
        raise NotImplementedError

    @property
    def call(self) -> Callable[..., Any]:
        """The offered function."""
        function: Callable[..., Any] = jobs.resolve(self.name)
        return function

    def begin(self, place: Path, **words: Any) -> tuple[Any, Mapping[str, Any]]:
        """(outcome of a job that nothing interrupts, arguments of another one, which was interrupted)."""
        for name in ("whole", "other"):
            (place / name).mkdir()
        self.call(**self.arguments(place / "whole"))
        arguments = self.arguments(place / "other")

        def interrupt(done: int, total: int) -> None:
            if done:
                raise _Interrupted

        with pytest.raises(_Interrupted):
            self.call(**arguments, progress=interrupt, **words)
        return self.outcome(place / "whole"), arguments

    def test_it_says_what_it_makes_and_takes_the_words_of_long_calls(self) -> None:
        assert self.call.__doc__, "the function has no docstring"
        taken = inspect.signature(self.call).parameters
        lacking = [word for word in VALUES if word not in taken and word not in refused(self.call)]
        assert not lacking, f"{lacking} are neither taken nor refused; decorate the function with `long_call`"
        assert "resume" not in refused(self.call), "whoever comes upon unfinished work calls it with resume"

    def test_a_word_without_a_meaning_is_refused_with_the_reason(self, tmp_path: Path) -> None:
        arguments = self.arguments(tmp_path)
        for word, reason in refused(self.call).items():
            with pytest.raises(TypeError) as caught:
                self.call(**arguments, **{word: _Elsewhere() if word == "executor" else VALUES[word]})
            assert reason in str(caught.value)

    def test_a_dry_run_estimates_and_writes_nothing(self, tmp_path: Path) -> None:
        arguments = self.arguments(tmp_path)
        before = sorted(tmp_path.rglob("*"))
        made = self.call(**arguments, dry_run=True)
        assert isinstance(made, Estimate) and made.unit_count, made
        assert sorted(tmp_path.rglob("*")) == before

    def test_an_interrupted_job_is_named_and_goes_on(self, tmp_path: Path) -> None:
        expected, arguments = self.begin(tmp_path)
        with pytest.raises(ZstoreError, match="unfinished"):
            self.call(**arguments)
        self.call(**arguments, resume=True)
        assert self.outcome(tmp_path / "other") == expected

    def test_a_finished_job_is_called_again_without_harm(self, tmp_path: Path) -> None:
        arguments = self.arguments(tmp_path)
        self.call(**arguments, resume=True)
        expected = self.outcome(tmp_path)
        self.call(**arguments, resume=True)
        assert self.outcome(tmp_path) == expected

    def test_overwrite_alone_replaces_a_finished_target(self, tmp_path: Path) -> None:
        arguments = self.arguments(tmp_path)
        self.call(**arguments)
        expected = self.outcome(tmp_path)
        with pytest.raises(ZstoreError):
            self.call(**arguments)
        assert self.outcome(tmp_path) == expected
        if "overwrite" not in refused(self.call):
            self.call(**arguments, overwrite=True)
            assert self.outcome(tmp_path) == expected

    def test_overwrite_begins_an_interrupted_job_anew(self, tmp_path: Path) -> None:
        if "overwrite" in refused(self.call):
            return
        expected, arguments = self.begin(tmp_path)
        self.call(**arguments, overwrite=True)
        assert self.outcome(tmp_path / "other") == expected

    def test_an_executor_makes_the_same(self, tmp_path: Path) -> None:
        if "executor" in refused(self.call):
            return
        expected, arguments = self.begin(tmp_path)
        self.call(**arguments, resume=True, executor=_Elsewhere())
        assert self.outcome(tmp_path / "other") == expected

    @needs("has_parts")
    def test_parts_make_the_same(self, tmp_path: Path) -> None:
        expected, arguments = self.begin(tmp_path)
        plan = tmp_path / "plan.json"
        count = zstore.plan_units(plan, self.call, **arguments, resume=True)
        left = count
        while left:  # as many times as the job has passes
            before, left = left, min(zstore.run_units(plan, part, 2) for part in (1, 2))
            assert left < before, "parts make no unit"
        if count:
            zstore.finish_units(plan)
        assert self.outcome(tmp_path / "other") == expected
