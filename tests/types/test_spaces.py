"""Spaces: membership, samples, flat forms, texts."""

import copy
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core.errors import SpaceError
from palaestrai_mosaik.types import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

INF = float("inf")


# --- strategies ---------------------------------------------------------------------------

numbers = st.floats(-1e6, 1e6, allow_nan=False)
shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)


@st.composite
def float_boxes(draw):
    shape = draw(shapes)
    size = int(np.prod(shape))
    pairs = [sorted(draw(st.tuples(numbers, numbers))) for _ in range(size)]
    low = np.array([a if draw(st.booleans()) else -INF for a, _ in pairs]).reshape(shape)
    high = np.array([b if draw(st.booleans()) else INF for _, b in pairs]).reshape(shape)
    return Box(low, high, shape, draw(st.sampled_from([np.float64, np.float32])))


@st.composite
def integer_boxes(draw):
    shape = draw(shapes)
    low = draw(st.one_of(st.just(-INF), st.integers(-100, 0)))
    return Box(low, draw(st.one_of(st.just(INF), st.integers(0, 100))), shape, draw(st.sampled_from("bil")))


simple_spaces = st.one_of(
    float_boxes(),
    integer_boxes(),
    st.builds(Discrete, st.integers(1, 2**40), st.integers(-100, 100)),
    st.builds(MultiDiscrete, st.lists(st.integers(1, 9), min_size=1, max_size=4)),
    st.just(MultiDiscrete([[2, 3], [4, 5]])),
    st.builds(MultiBinary, st.one_of(st.integers(1, 5), st.lists(st.integers(1, 3), min_size=1, max_size=2))),
)
spaces = st.recursive(
    simple_spaces, lambda inner: st.lists(inner, min_size=1, max_size=3).map(Tuple), max_leaves=5
)


# --- properties ---------------------------------------------------------------------------


@settings(max_examples=150)
@given(spaces, st.integers(0, 2**32))
def test_samples_are_members_and_survive_the_flat_form(space, seed):
    value = space.sample(np.random.default_rng(seed))
    assert value in space
    flat = space.flatten(value)
    assert flat.shape == (space.size,)
    assert flat.dtype == np.float64
    assert np.all((space.flat_low <= flat) & (flat <= space.flat_high))
    assert np.all(flat[space.flat_integral] == np.rint(flat[space.flat_integral]))
    back = space.unflatten(flat)
    assert np.array_equal(space.flatten(back), flat)
    assert type(back) is type(value)


@settings(max_examples=150)
@given(spaces)
def test_what_is_printed_is_parsed(space):
    again = Space.from_string(space.to_string())
    assert again == space
    assert hash(again) == hash(space)
    assert repr(again) == repr(space) == space.to_string()
    assert np.array_equal(again.flat_low, space.flat_low)
    assert np.array_equal(again.flat_high, space.flat_high)


@settings(max_examples=100)
@given(spaces, st.text(max_size=3), st.integers(0, 60))
def test_a_damaged_text_is_a_space_or_a_space_error(space, noise, place):
    text = space.to_string()
    text = text[:place] + noise + text[place + 1 :]
    try:
        found = Space.from_string(text)
    except SpaceError as error:
        assert "found" in str(error) or "cannot read" in str(error)
    else:
        assert isinstance(found, Space)


@settings(max_examples=60)
@given(spaces, st.integers(0, 2**32))
def test_samples_come_from_the_generator_alone(space, seed):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    first = space.flatten(space.sample(np.random.default_rng(seed)))
    random.seed(2)
    np.random.seed(2)  # noqa: NPY002
    second = space.flatten(space.bound(np.random.default_rng(seed)).sample())
    assert np.array_equal(first, second)


@settings(max_examples=60)
@given(spaces)
def test_nan_and_non_numbers_are_nowhere(space):
    for value in (
        float("nan"),
        np.nan,
        np.full(space.shape or (), np.nan),
        None,
        "1",
        object(),
        1j,
        {},
        [[], [1]],
    ):
        assert value not in space


# --- membership by hand -------------------------------------------------------------------

MEMBERSHIP = [
    # value, Discrete(5), Box ()-shaped 0..5, Box (1,)-shaped 0..5, integer Box () 0..5
    (3, True, True, True, True),
    (3.0, True, True, True, True),
    (np.int8(3), True, True, True, True),
    (np.float64(3), True, True, True, True),
    (np.float32(3), True, True, True, True),
    (np.array(3), True, True, True, True),
    (np.array([3.0]), True, True, True, True),
    ([3], True, True, True, True),
    (3.5, False, True, True, False),
    (np.array([3.5]), False, True, True, False),
    (5, False, True, True, True),
    (5.000001, False, False, False, False),
    (-1, False, False, False, False),
    (INF, False, False, False, False),
    (10**400, False, False, False, False),
    (True, True, False, False, False),
    (np.True_, True, False, False, False),
    ([3, 3], False, False, False, False),
    ([], False, False, False, False),
]


@pytest.mark.parametrize(("value", "discrete", "scalar", "vector", "integer"), MEMBERSHIP)
def test_membership_of_single_numbers(value, discrete, scalar, vector, integer):
    assert (value in Discrete(5)) is discrete
    assert (value in Box(0, 5, ())) is scalar
    assert (value in Box(0, 5, (1,))) is vector
    assert (value in Box(0, 5, (), np.int64)) is integer


def test_membership_of_arrays():
    box = Box([0.0, -INF], [1.0, 2.5])
    assert [0.5, -1e300] in box
    assert (1, 2) in box
    assert np.array([1.0, -INF]) in box
    assert [0.5, 3.0] not in box
    assert [[0.5, 1.0]] not in box  # a row of a matrix is not a vector
    assert 0.5 not in box
    assert [0, 1, 1] in MultiBinary(3)
    assert [True, False, np.True_] in MultiBinary(3)
    assert [0, 1, 2] not in MultiBinary(3)
    assert [0, 1] not in MultiBinary(3)
    assert [1, 2] in MultiDiscrete([2, 3])
    assert np.array([1.0, 2.0]) in MultiDiscrete([2, 3])
    assert [2, 0] not in MultiDiscrete([2, 3])
    assert [-1, 0] not in MultiDiscrete([2, 3])
    assert 2 in Discrete(3, start=2)
    assert 4 in Discrete(3, start=2)
    assert 1 not in Discrete(3, start=2)
    assert 5 not in Discrete(3, start=2)


def test_membership_of_tuples():
    space = Tuple(Discrete(2), Box(0, 1, (2,)), Tuple(Discrete(3)))
    assert (1, [0.5, 1.0], (2,)) in space
    assert [1, np.array([0.5, 1.0]), [2]] in space
    assert (1, [0.5, 1.5], (2,)) not in space
    assert (1, [0.5, 1.0]) not in space
    assert 1 not in space
    assert np.array([1, 2]) in Tuple(Discrete(2), Discrete(3))


def test_a_bound_is_a_member_as_given_and_as_rounded_to_a_narrow_type():
    box = Box(0.1, 0.7, (), np.float32)
    for bound in (0.1, 0.7, np.float32(0.1), np.float32(0.7), float(np.float32(0.7))):
        assert bound in box
    assert 0.09999 not in box


# --- flat forms by hand -------------------------------------------------------------------


def test_flat_form_of_a_nested_tuple():
    space = Tuple(Discrete(4, start=-1), Box([[0, 1], [2, 3]], [[9, 9], [9, INF]]), MultiDiscrete([2, 3]))
    assert space.size == 7
    assert space.flat_low.tolist() == [-1, 0, 1, 2, 3, 0, 0]
    assert space.flat_high.tolist() == [2, 9, 9, 9, INF, 1, 2]
    assert space.flat_integral.tolist() == [True, False, False, False, False, True, True]
    value = (2, [[5, 6], [7, 8]], [1, 2])
    assert space.flatten(value).tolist() == [2, 5, 6, 7, 8, 1, 2]
    number, matrix, pair = space.unflatten([2, 5, 6, 7, 8, 1, 2])
    assert number == 2
    assert type(number) is int
    assert matrix.tolist() == [[5, 6], [7, 8]]
    assert pair.tolist() == [1, 2]
    assert pair.dtype == np.int64


ONE_NUMBER = [
    Box(-5, 5, ()),
    Box(-5, 5, (), np.float32),
    Box(-5, 5, (), np.float16),
    Box(-5, 5, (1, 1), np.float32),
    Box(-5, 5, (), np.int32),
    Discrete(5),
    MultiDiscrete([5]),
    MultiBinary(1),
    Tuple(Box(-5, 5, (1,))),
]


@pytest.mark.parametrize("space", ONE_NUMBER, ids=str)
@pytest.mark.parametrize("number", [0.0, 1.0, -0.0, 0.1, 1e300, float("nan"), INF])
def test_one_number_is_a_flat_form_of_length_one(space, number):
    def either(call):
        try:
            with np.errstate(over="ignore"):
                value = call()
        except SpaceError as error:
            return str(error)
        return type(value), repr(value)

    assert either(lambda: space.from_number(number)) == either(lambda: space.unflatten([number]))


@pytest.mark.parametrize("space", ONE_NUMBER, ids=str)
@pytest.mark.parametrize(
    "value",
    [1, 0.1, True, "1", None, [1.0], ([1.0],), np.float32(0.1), np.float64(0.1), np.array([[1]]), [1, 2]],
)
def test_the_one_number_of_a_value(space, value):
    def either(call):
        try:
            return call()
        except SpaceError as error:
            return str(error)

    assert either(lambda: space.to_number(value)) == either(lambda: float(space.flatten(value)[0]))


def test_unflatten_gives_the_type_of_the_space():
    assert type(Box(0, 1, ()).unflatten([0.5])) is float
    assert type(Box(0, 9, (), np.int32).unflatten([3.0])) is int
    assert Box(0, 1, ()).unflatten([0.5]) == 0.5
    array = Box(0, 255, (2,), np.uint8).unflatten([0, 255])
    assert array.dtype == np.uint8
    assert array.tolist() == [0, 255]
    assert MultiBinary((2, 1)).unflatten([1, 0]).tolist() == [[1], [0]]


def test_flatten_makes_a_new_vector():
    value = np.array([0.25, 0.5])
    flat = Box(0, 1, (2,)).flatten(value)
    flat[0] = 9
    assert value[0] == 0.25


def test_readings_outside_their_space_have_a_flat_form():
    assert Box(0, 1, ()).flatten(1.3).tolist() == [1.3]


@pytest.mark.parametrize(
    ("space", "vector", "message"),
    [
        (Box(0, 1, (2,)), [1.0], r"shape \(2,\), not \(1,\)"),
        (Discrete(3), [1.5], "1.5 is not a whole number"),
        (Discrete(3), [np.nan], "not a whole number"),
        (Box(0, 9, (2,), np.int8), [1, 2.5], "other than whole numbers"),
        (Box(0, 9, (2,), np.int8), [1, 300], "whole numbers of int8"),
        (MultiBinary(2), [1, np.nan], "other than whole numbers"),
    ],
)
def test_unflatten_refuses(space, vector, message):
    with pytest.raises(SpaceError, match=message):
        space.unflatten(vector)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (Box(0, 1, (2,)), [1, 2, 3]),
        (Discrete(3), "one"),
        (Tuple(Discrete(2), Discrete(2)), (1,)),
        (Discrete(3), None),
    ],
)
def test_flatten_refuses_what_is_no_value_of_that_shape(space, value):
    with pytest.raises(SpaceError, match="cannot flatten"):
        space.flatten(value)


# --- samples ------------------------------------------------------------------------------


def test_sampling_without_a_generator_is_an_error():
    for space in (Discrete(2), Box(0, 1), MultiDiscrete([2]), MultiBinary(2), Tuple(Discrete(2))):
        with pytest.raises(SpaceError, match="no generator"):
            space.sample()


def test_a_bound_space_is_an_equal_copy():
    space = Box(0, 1, ())
    bound = space.bound(np.random.default_rng(1))
    assert bound == space
    assert hash(bound) == hash(space)
    assert bound.rng is not None
    assert space.rng is None
    assert bound.sample() == space.sample(np.random.default_rng(1))


def test_discrete_samples_are_uniform():
    rng = np.random.default_rng(7)
    space = Discrete(4, start=10)
    counts = np.bincount([space.sample(rng) - 10 for _ in range(8000)], minlength=4)
    assert counts.size == 4
    # chi-squared with 3 degrees of freedom: 16.3 is exceeded once in 1,000 seeds
    assert ((counts - 2000) ** 2 / 2000).sum() < 16.3


def test_distributions_of_boxes_are_those_of_gymnasium():
    rng = np.random.default_rng(3)
    box = Box([0.0, 2.0, -INF, -INF], [4.0, INF, 2.0, INF])
    draws = np.array([box.sample(rng) for _ in range(4000)])
    # uniform 0..4; 2 + exponential; 2 - exponential; normal: means and deviations
    assert draws.mean(axis=0) == pytest.approx([2, 3, 1, 0], abs=0.1)
    assert draws.std(axis=0) == pytest.approx([4 / 12**0.5, 1, 1, 1], abs=0.1)
    assert draws[:, 1].min() >= 2
    assert draws[:, 2].max() <= 2


def test_integer_boxes_include_both_ends():
    rng = np.random.default_rng(3)
    space = Box(-1, 1, (), np.int8)
    assert {space.sample(rng) for _ in range(100)} == {-1, 0, 1}
    assert type(space.sample(rng)) is int


def test_huge_widths_do_not_overflow():
    rng = np.random.default_rng(3)
    for shape in ((), (3,)):
        space = Box(-1.7e308, 1.7e308, shape)
        draws = [space.sample(rng) for _ in range(50)]
        assert all(d in space for d in draws)
        assert np.min(draws) < -1e307
        assert np.max(draws) > 1e307


def test_a_box_of_one_value_samples_that_value():
    assert Box(0.1, 0.1, ()).sample(np.random.default_rng(0)) == 0.1


# --- value objects ------------------------------------------------------------------------


def test_equality():
    assert Box(0, 1, (2,)) == Box([0, 0], [1.0, 1.0])
    assert Box(0, 1, ()) == Box(-0.0, 1, ())
    assert Box(0, 1, ()) != Box(0, 1, (1,))
    assert Box(0, 1, ()) != Box(0, 1, (), np.float32)
    assert Box(0, 1) == Box(0, 1, (1,))  # Gymnasium's shape of two numbers
    assert Discrete(2) != Discrete(2, start=1)
    assert Discrete(2) != MultiDiscrete([2])
    assert MultiBinary(2) == MultiBinary((2,))
    assert MultiDiscrete([2, 3]) != MultiDiscrete([[2, 3]])
    assert Tuple(Discrete(2), Discrete(3)) == Tuple([Discrete(2), Discrete(3)])
    assert Tuple(Discrete(2)) != Discrete(2)
    assert len({Discrete(2), Discrete(2), Discrete(3)}) == 2


def test_spaces_never_change():
    box = Box(0, 1, (2,))
    with pytest.raises(AttributeError, match="cannot be changed"):
        box.low = np.zeros(2)
    with pytest.raises(AttributeError, match="cannot be changed"):
        del box.low
    for array in (box.low, box.high, box.flat_low, MultiDiscrete([2]).nvec):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_the_arrays_given_are_not_frozen_or_kept():
    low, high = np.zeros(2), np.ones(2)
    box = Box(low, high)
    low[0] = -5
    assert box.low.tolist() == [0, 0]


def test_copies_sample_on_and_pickles_leave_the_generator_behind():
    bound = Tuple(Discrete(3), Box(0, 1, (), np.float32)).bound(np.random.default_rng(1))
    assert copy.deepcopy(bound).rng is bound.rng
    assert copy.copy(bound) == bound
    restored = pickle.loads(pickle.dumps(bound))
    assert restored == bound
    assert restored.rng is None


def test_gymnasiums_attributes():
    assert (Discrete(5, start=2).n, Discrete(5, start=2).start, Discrete(5).shape) == (5, 2, ())
    assert MultiBinary(4).n == 4
    assert MultiBinary([2, 3]).n == (2, 3)
    assert MultiBinary([2, 3]).shape == (2, 3)
    assert MultiDiscrete([2, 3]).nvec.tolist() == [2, 3]
    assert Box(0, [1, 2], dtype=np.float32).high.dtype == np.float32
    assert Box(0, [1, 2]).shape == (2,)
    assert Tuple(Discrete(2), Discrete(3)).spaces == (Discrete(2), Discrete(3))
    assert Tuple(Discrete(2), Discrete(3))[1] == Discrete(3)
    assert len(Tuple(Discrete(2), Discrete(3))) == 2


# --- what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Box(1, 0), "low <= high"),
        (lambda: Box(np.nan, 0), "must not be NaN"),
        (lambda: Box(INF, INF), "low < inf"),
        (lambda: Box(-INF, -INF), "high > -inf"),
        (lambda: Box([0, 0], [1, 1, 1]), "must have its shape"),
        (lambda: Box([0, 0], 1, (3,)), "must have its shape"),
        (lambda: Box(0, 1, (0,)), "length >= 1"),
        (lambda: Box(0, 1, (1.5,)), "must be an integer"),
        (lambda: Box("0", 1), "must be a number"),
        (lambda: Box([0, [1]], 1), "not a regular array"),
        (lambda: Box(0, 1, (), "complex128"), "floats of up to 64 bits"),
        (lambda: Box(0, 1, (), "no_type"), "not a numpy dtype"),
        (lambda: Box(0.5, 3, (), np.int64), "whole numbers"),
        (lambda: Box(0, 256, (), np.uint8), "from 0 to 255"),
        (lambda: Box(0, 2**54, (), np.int64), "whole numbers from"),
        (lambda: Discrete(0), "n >= 1"),
        (lambda: Discrete(2.5), "must be an integer"),
        (lambda: Discrete(True), "must be an integer"),
        (lambda: Discrete(2, start=2**53), "within"),
        (lambda: MultiDiscrete([]), "at least one"),
        (lambda: MultiDiscrete(3), "needs a list"),
        (lambda: MultiDiscrete([2, 0]), ">= 1"),
        (lambda: MultiBinary(0), "length >= 1"),
        (lambda: MultiBinary([]), "at least one axis"),
        (Tuple, "one or more spaces"),
        (lambda: Tuple(Discrete(2), 3), "one or more spaces"),
    ],
)
def test_ill_defined_spaces_are_refused(make, message):
    with pytest.raises(SpaceError, match=message):
        make()


# --- texts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "space"),
    [
        # as palaestrAI 3.5 prints them
        ("Box(low=[0.0], high=[1.0], shape=(1,), dtype=np.float64)", Box(0, 1, (1,))),
        ("Box(low=0.0, high=1.0, shape=(), dtype=np.float32)", Box(0, 1, (), np.float32)),
        ("Box(low=[-inf, -inf], high=[inf, inf], shape=(2,), dtype=np.float64)", Box(-INF, INF, (2,))),
        (
            "Box(low=[[0, 0]], high=[[9, 8]], shape=(1, 2), dtype=np.uint8)",
            Box([[0, 0]], [[9, 8]], dtype=np.uint8),
        ),
        ("MultiDiscrete([[2, 3],\n [4, 5]])", MultiDiscrete([[2, 3], [4, 5]])),
        ("Discrete(5)", Discrete(5)),
        ("MultiBinary(4)", MultiBinary(4)),
        (
            "Tuple(Discrete(2), Tuple(Discrete(3), Discrete(4)))",
            Tuple(Discrete(2), Tuple(Discrete(3), Discrete(4))),
        ),
        # as documents write them
        ("Box(low=0.0, high=1.0, shape=(1,), dtype=float64)", Box(0, 1, (1,))),
        (
            "Box(low=[0.0, -inf], high=[1.0, inf], shape=(2,), dtype=np.float32)",
            Box([0, -INF], [1, INF], (2,), "f"),
        ),
        ("Box(0, 10, ())", Box(0, 10, ())),
        ("Box(-np.inf, +numpy.inf, (2, 3), np.double)", Box(-INF, INF, (2, 3))),
        ("Box(0, 1, dtype='int32')", Box(0, 1, dtype=np.int32)),
        ("  Box(\n low=-1e-5,\n high=1_000)\n", Box(-1e-5, 1000)),
        ("Discrete(5, start=-2)", Discrete(5, -2)),
        ("Discrete(n=5)", Discrete(5)),
        ("MultiBinary((2, 3))", MultiBinary((2, 3))),
        ("Tuple([Discrete(2), Discrete(3)])", Tuple(Discrete(2), Discrete(3))),
        ("Tuple((Discrete(2),))", Tuple(Discrete(2))),
    ],
)
def test_texts_that_are_read(text, space):
    assert Space.from_string(text) == space


def test_printed_texts():
    assert str(Box(0, 1, (1,))) == "Box(low=0.0, high=1.0, shape=(1,), dtype=float64)"
    assert str(Box([0, -INF], 1)) == "Box(low=[0.0, -inf], high=1.0, shape=(2,), dtype=float64)"
    assert str(Box(0, 9, (), np.int16)) == "Box(low=0, high=9, shape=(), dtype=int16)"
    assert str(Discrete(5)) == "Discrete(5)"
    assert str(Discrete(5, start=2)) == "Discrete(5, start=2)"
    assert str(MultiDiscrete([2, 3])) == "MultiDiscrete([2, 3])"
    assert str(MultiBinary((2, 3))) == "MultiBinary((2, 3))"
    assert str(Tuple(Discrete(2), MultiBinary(1))) == "Tuple(Discrete(2), MultiBinary(1))"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["Box, Discrete, MultiDiscrete, MultiBinary, Tuple"]),
        ("Bx(0, 1)", ["column 1", "'Bx'", "did you mean 'Box'"]),
        ("Dict(a=1)", ["unknown space 'Dict'", "allowed: Box, Discrete"]),
        ("Box(0)", ["Box lacks 'high'"]),
        ("Box(0, 1, lo=2)", ["column 11", "'lo'", "did you mean 'low'", "allowed: low, high, shape, dtype"]),
        ("Box(0, 1, low=2)", ["column 11", "'low' is given twice"]),
        ("Box(0, 1, (), float, 3)", ["column 22", "too many arguments"]),
        ("Box(0, one)", ["column 8", "'one'", "expected a number"]),
        ("Box(0, nan)", ["column 8", "'nan'"]),
        ("Box(0, 1, dtype=flot32)", ["column 17", "did you mean 'float32'"]),
        ("Box(0, 1, dtype=[1])", ["column 17", "unknown dtype '[1]'"]),
        ("Tuple(Discrete(2),\n  Box(1, 0))", ["line 2, column 3", "low <= high"]),
        ("Tuple(Discrete(2), 5)", ["column 20", "found '5'"]),
        ("Tuple(spaces=Discrete(2))", ["column 7", "takes spaces only"]),
        ("Discrete(2.0)", ["column 1", "n must be an integer, found 2.0"]),
        ("Discrete(True)", ["column 10", "'True'"]),
        ("Discrete(2", ["'(' was never closed", "column 9"]),
        ("MultiDiscrete([2 3])", ["comma", "column"]),
        ("Box(0, 1)\x00", ["cannot read"]),
        ("__import__('os').system('true')", ["found", "expected one of Box"]),
        ("Box(0, __import__('os'))", ["column 8", "expected a number"]),
        ("Tuple(" * 90 + "Discrete(0)" + ")" * 90, ["n >= 1", "..."]),
        ("Tuple(" * 5000, ["cannot read"]),
        ("-" * 20000 + "1", ["cannot read"]),
    ],
)
def test_texts_that_are_refused_say_where_and_why(text, parts):
    with pytest.raises(SpaceError) as caught:
        Space.from_string(text)
    for part in parts:
        assert part in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_subclass_reads_its_own_kind_only():
    assert Box.from_string("Box(0, 1)") == Box(0, 1)
    with pytest.raises(SpaceError, match="expected a Box, found Discrete"):
        Box.from_string("Discrete(2)")


def test_only_strings_are_texts():
    with pytest.raises(SpaceError, match="must be a string, found 5"):
        Space.from_string(5)
