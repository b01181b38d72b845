"""Workflows of GitHub run actions that cannot change, with few permissions."""

import re
from pathlib import Path

import pytest
import yaml
from in_turn import in_turn

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
USES = re.compile(r"^\s*(?:- )?uses: *(.*)$", re.M)
PINNED = re.compile(r"(?P<action>[\w.-]+/[\w./-]+)@(?P<commit>[0-9a-f]{40}) # (?P<version>v\d+\.\d+\.\d+)(?:,.*)?")
LOCAL = re.compile(r"\./\.github/workflows/[\w-]+\.yml(?: #.*)?")


def unpinned(text):
    """Returns the actions without a commit, or without a comment with their version."""
    return [used for used in USES.findall(text) if not PINNED.fullmatch(used) and not LOCAL.fullmatch(used)]


@pytest.mark.parametrize(
    "used",
    [
        "actions/checkout@v7",
        "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1",
        "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7",
        "actions/checkout@3d3c42e # v7.0.1",
        "docker://alpine:3.20",
    ],
)
def test_actions_without_commit_or_version_are_found(used):
    assert unpinned(f"    steps:\n      - uses: {used}\n") == [used]


@in_turn("path", WORKFLOWS)
def test_actions_are_pinned_by_commit_with_a_comment_of_their_version(path):
    assert unpinned(path.read_text(encoding="utf-8")) == []


def test_an_action_has_one_version_in_all_workflows():
    used = {match.groups() for path in WORKFLOWS for match in PINNED.finditer(path.read_text(encoding="utf-8"))}
    assert len(used) == len({action for action, *_ in used}) >= 6


def writing_jobs():
    """Returns the jobs that may write, by the names of workflow and job, with their permissions."""
    found = {}
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}, path
        for name, job in workflow["jobs"].items():
            if "write" in (granted := job.get("permissions", {})).values():
                found[path.name, name] = set(granted)
    return found


def test_only_jobs_that_publish_may_write():
    assert writing_jobs() == {
        ("docs.yml", "publish"): {"contents"},
        ("wheels.yml", "publish"): {"id-token", "attestations"},
    }


def test_files_are_published_after_the_tests_of_the_same_commit_and_of_the_wheels():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8"))["jobs"]
    publish = jobs["publish"]
    for needed in ("version", "tests", "build", "wheel"):
        assert needed in publish["needs"] and f"needs.{needed}.result == 'success'" in publish["if"]
    assert "github.event_name == 'push'" in publish["if"]
    assert jobs["tests"]["uses"] == "./.github/workflows/tests.yml"
    assert not any("run" in step or "checkout" in step["uses"] for step in publish["steps"])  # only what was tested
    uploaded = [step["with"]["name"] for step in jobs["build"]["steps"] if "upload-artifact" in step.get("uses", "")]
    tested = [step["with"]["name"] for step in jobs["wheel"]["steps"] if "download-artifact" in step.get("uses", "")]
    assert uploaded == tested == ["dist-linux"]
