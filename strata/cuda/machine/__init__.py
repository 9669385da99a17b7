"""What kernels are written with: instructions, memory by address, sums over warps, the numerics compiled for cards."""
