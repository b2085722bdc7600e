"""Random inputs: a fit ends with a documented error or a sound result (`fuzz.py` has more)."""

import fuzz
import pytest


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_fits_of_random_inputs_end_with_a_documented_error_or_a_sound_result(first):
    found = {seed: fuzz.fault(seed) for seed in range(first, first + 50)}
    assert not {seed: text for seed, text in found.items() if text}


def test_a_fault_would_be_seen(monkeypatch):
    fit = fuzz.SpecialK.fit

    def one_label(self, X):
        self.labels_ = fit(self, X).labels_ * 0
        return self

    monkeypatch.setattr(fuzz.SpecialK, "fit", one_label)
    found = [fuzz.fault(seed) for seed in range(60)]
    assert any("labels are not those of k clusters" in text for text in found)
