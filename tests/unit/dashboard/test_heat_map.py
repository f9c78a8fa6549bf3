"""The map of devices: groups by colour, squares and the table beside it."""

from admission.dashboard.devices import heat_map
from admission.dashboard.devices.heat_map import Square


def a_square(group: str, *, node: str = "a", is_queue: bool = True, memory: str = "80Gi") -> Square:
    return Square(node=node, device="gpu-0", driver="d", model="H100", memory=memory, group=group, is_queue=is_queue)


def test_the_largest_queues_have_colours_of_their_own_and_a_queue_called_free_is_not_what_is_free() -> None:
    names = [f"q{number}" for number in range(heat_map.SERIES)]
    queues = [a_square(name) for name in names for _ in range(2)]
    drawn = heat_map.heat_map([*queues, a_square("free"), a_square("free", is_queue=False), a_square("z")])

    assert [(row.group, row.style, row.total) for row in drawn.rows] == [
        *((name, f"series-{at}", 2) for at, name in enumerate(names)),
        ("free", "others", 1),
        ("z", "others", 1),
        ("free", "free", 1),
    ]
    assert {style for block in drawn.blocks for style, _ in block.paths} == {
        *(f"series-{at}" for at in range(heat_map.SERIES)),
        *("others", "free"),
    }


def test_every_device_is_a_square_of_its_nodes_block_and_blocks_do_not_overlap() -> None:
    many = [a_square("q", node=f"node-{number}") for number in range(300) for _ in range(1 + number % 11)]
    few = [square for square in many if square.node < "node-12"]

    for found in (many, few):
        drawn = heat_map.heat_map(found)
        assert sum(path.count("M") for block in drawn.blocks for _, path in block.paths) == drawn.total == len(found)
        places = [(one.x, one.y, one.x + one.width, one.y + one.height) for one in drawn.blocks]
        assert all(right <= heat_map.WIDTH and bottom <= drawn.height for _, _, right, bottom in places)
        assert not [
            (one, other)
            for at, one in enumerate(places)
            for other in places[:at]
            if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
        ]
    assert (heat_map.heat_map(many).named, heat_map.heat_map(few).named) == (False, True)


def test_a_block_says_in_words_what_it_shows() -> None:
    drawn = heat_map.heat_map([a_square("q"), a_square("q", memory=""), a_square("free", is_queue=False)])

    assert [block.title for block in drawn.blocks] == ["a: 2 H100 80Gi, 1 H100; q 2, free 1"]
    assert drawn.models == ("H100", "H100 80Gi")
    assert drawn.rows[0].by_model == {"H100 80Gi": 1, "H100": 1}
