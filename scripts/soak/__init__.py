"""Random operations on a whole node without a kernel or a disk: does every invariant hold after each of them?"""
