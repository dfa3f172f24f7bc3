"""The dashboard's queries over samples whose answers are known."""

import numpy as np
import pytest

from benchmarks.dashboard import History, panels
from benchmarks.server_figures import DASHBOARD, UNITS, draw
from benchmarks.server_watch import Watched


def counters(**values):
    return {("infernix_requests_total", (("kind", kind), ("outcome", "stop"))): value for kind, value in values.items()}


def lines(query, samples, *, legend="{{kind}}", window=25.0):
    found = History([10.0 * index for index in range(len(samples))], samples, window).series(query, legend)
    return {name: [None if np.isnan(value) else round(float(value), 6) for value in row] for name, row in found.items()}


def test_a_rate_is_that_of_its_window():
    samples = [counters(a=0), counters(a=10), counters(a=40), counters(a=40, b=7), counters(a=40, b=9)]
    rate = "rate(infernix_requests_total[$__rate_interval])"
    assert lines(rate, samples) == {"a": [None, 1.0, 2.0, 1.5, 0.0], "b": [None, None, None, None, 0.2]}
    assert lines(f"sum({rate})", samples, legend="all") == {"all": [None, 1.0, 2.0, 1.5, 0.2]}


def test_sums_selections_and_quotients():
    samples = [
        {
            ("up", (("engine", "0"), ("kind", "a"))): 6.0,
            ("up", (("engine", "1"), ("kind", "a"))): 2.0,
            ("up", (("engine", "1"), ("kind", "b"))): 5.0,
            ("down", (("engine", "1"), ("kind", "a"))): 4.0,
        }
    ]
    assert lines("sum by (kind) (up)", samples) == {"a": [8.0], "b": [5.0]}
    assert lines('sum by (engine) (up{kind="a"})', samples, legend="{{engine}}") == {"0": [6.0], "1": [2.0]}
    assert lines('up{engine=~"1|2",kind="b"}', samples) == {"b": [5.0]}
    assert lines("sum by (kind) (up) / sum by (kind) (down)", samples) == {"a": [2.0]}
    assert lines('sum by (kind) (up{engine="7"})', samples) == {}


def test_a_quantile_is_linear_inside_its_bucket():
    def bucket(le, count):
        return {("infernix_prepare_seconds_bucket", (("le", le), ("process", "api"))): count}

    first = {**bucket("0.1", 0), **bucket("0.5", 0), **bucket("+Inf", 0)}
    second = {**bucket("0.1", 2), **bucket("0.5", 6), **bucket("+Inf", 8)}

    def quantile(share):
        rate = "rate(infernix_prepare_seconds_bucket[$__rate_interval])"
        query = f"histogram_quantile({share}, sum by (le, process) ({rate}))"
        return lines(query, [first, second], legend="{{process}}")["api"]

    assert quantile(0.5) == [None, 0.3]  # the 4th of 8: half of the way from the 2nd to the 6th
    assert quantile(0.125) == [None, 0.05]
    assert quantile(0.99) == [None, 0.5]  # in the last bucket, which has no upper bound


@pytest.mark.parametrize("query", ["avg(up)", "up + up", "rate(up[5m])", "sum by (kind) (up) up"])
def test_what_is_not_understood_is_refused(query):
    with pytest.raises(ValueError, match=r"what is|is missing before"):
        lines(query, [{("up", ()): 1.0}])


def test_every_panel_of_the_dashboard_is_drawn(tmp_path):
    shown = panels(DASHBOARD)
    assert {panel.unit for panel in shown} <= set(UNITS)
    watched = Watched()
    for index in range(3):
        watched.seconds.append(float(index))
        watched.parts.append({"worker": index << 20})
        watched.metrics.append(counters(a=index))
    history = History(watched.seconds, watched.metrics, 10.0)
    assert [panel.title for panel in shown if any(history.series(*query) for query in panel.queries)] == [
        "Constrained outputs by outcome",
        "Constrained outputs by kind",
    ]
    page = tmp_path / "page.png"
    draw(watched, page)
    assert page.read_bytes().startswith(b"\x89PNG")
