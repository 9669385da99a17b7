"""The written orders of float sums, as trees over lanes.

Element i of a sum belongs to lane i mod L.  A lane is a chain in ascending i that starts at +0; the lanes are then summed
by a fixed tree.  The same L, chain and tree hold for every executor, row count and thread count.

    EIGHT = 8 lanes     quantised products (element = group of 32), attention dot products and sums, delta-rule products:
                        ((0+4)+(2+6)) + ((1+5)+(3+7))
    ROW = 32 lanes      norms: halving tree  l + (l+16), l + (l+8), ... l + (l+1)
    WIDE = 256 lanes    float-weight products: halving tree  l + (l+128), ... l + (l+1)

The eight-lane tree is the halving tree too: l + (l+4), l + (l+2), l + (l+1).  Does not know: what is summed.
"""

from types import SimpleNamespace

EIGHT = 8
ROW = 32
WIDE = 256


def build(seam: SimpleNamespace) -> SimpleNamespace:
    """Compile `tree8(a0..a7)` and `halve(lanes, at, n_lanes)` (sums lanes[at:at+n_lanes] in place) for one executor."""
    jit, add = seam.jit, seam.add

    @jit
    def tree8(a0, a1, a2, a3, a4, a5, a6, a7):
        return add(add(add(a0, a4), add(a2, a6)), add(add(a1, a5), add(a3, a7)))

    @jit
    def halve(lanes, at, n_lanes):
        width = n_lanes >> 1
        while width > 0:
            for lane in range(width):
                lanes[at + lane] = add(lanes[at + lane], lanes[at + lane + width])
            width >>= 1
        return lanes[at]

    return SimpleNamespace(tree8=tree8, halve=halve)
