"""scikit-learn's checks of estimators, of every method that is fitted to data alone."""

import pytest

import normkit as nk

checks = pytest.importorskip("sklearn.utils.estimator_checks")
OF_ALL = {
    "check_no_attributes_set_in_init": "a torch module has its own",
    "check_do_not_raise_errors_in_init_or_set_params": "arguments are checked where they are given",
}
NOT_KEPT = {
    "gaussian-normality": OF_ALL,
    "nearest-mean": OF_ALL
    | {
        "check_fit_score_takes_y": "classes are called target, as in all this package",
        "check_estimators_nan_inf": "it hands classes in as real numbers, and they are whole ones",
        "check_dtype_object": "it asks for a classifier's words; classes are numbers from 0 here",
        "check_n_features_in_after_fitting": "it is refused, in this package's words, which name the shapes",
        "check_fit2d_predict1d": "the same",
    },
}


NO_ESTIMATORS = {
    "generalized-gaussian-init": "its fit takes one weight, not samples",
    "learned-rounding": "its fit takes one weight, not samples",
    "phi-s": "a norm, which is called as a module; its fit sets the state of one",
    "stain-norm": "its fit takes one picture, not samples",
}


def test_every_method_with_fit_is_checked():
    assert {name for name in nk.methods() if hasattr(nk.card(name).entry, "fit")} == {*NOT_KEPT, *NO_ESTIMATORS}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_what_fit_finds_sizes_of_is_an_estimator_of_scikit_learn(name):
    found = checks.check_estimator(nk.create(name), expected_failed_checks=NOT_KEPT[name], on_fail=None, on_skip=None)
    failed = {one["check_name"]: str(one["exception"]) for one in found if one["status"] == "failed"}
    assert failed == {}
    kept = {one["check_name"] for one in found if one["status"] == "passed"}
    assert not kept & set(NOT_KEPT[name])
