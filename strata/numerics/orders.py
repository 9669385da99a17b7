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
    """Compile the trees for one executor; the array forms work in place on lanes[at:at+L] and return the sum.

    `tree8(a0..a7)`, `sum_row_lanes(lanes, at)` (32 lanes), `sum_wide_lanes(lanes, at)` (256 lanes).
    """
    jit, add = seam.jit, seam.add

    @jit
    def tree8(a0, a1, a2, a3, a4, a5, a6, a7):
        return add(add(add(a0, a4), add(a2, a6)), add(add(a1, a5), add(a3, a7)))

    @jit
    def sum_row_lanes(lanes, at):
        for lane in range(16):
            lanes[at + lane] = add(lanes[at + lane], lanes[at + lane + 16])
        for lane in range(8):
            lanes[at + lane] = add(lanes[at + lane], lanes[at + lane + 8])
        return tree8(lanes[at], lanes[at + 1], lanes[at + 2], lanes[at + 3], lanes[at + 4], lanes[at + 5], lanes[at + 6], lanes[at + 7])

    @jit
    def sum_wide_lanes(lanes, at):
        for lane in range(128):
            lanes[at + lane] = add(lanes[at + lane], lanes[at + lane + 128])
        for lane in range(64):
            lanes[at + lane] = add(lanes[at + lane], lanes[at + lane + 64])
        for lane in range(32):
            lanes[at + lane] = add(lanes[at + lane], lanes[at + lane + 32])
        return sum_row_lanes(lanes, at)

    return SimpleNamespace(tree8=tree8, sum_row_lanes=sum_row_lanes, sum_wide_lanes=sum_wide_lanes)
