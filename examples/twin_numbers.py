"""The numbers of the twin
=======================

Fused multiply-adds, exp, log and NumPy's random generator, in plain Python.

Run it with: `python examples/twin_numbers.py`

The program compares the generator with NumPy's, if that is installed. minidl computes exp and log by polynomials of its
own (minidl_c/simd/lane_math.h), as the last bit of `math.exp` depends on the C library. Its first weights and the order
of an epoch come from NumPy's PCG64, which a SeedSequence of integers seeds.
"""

from math import factorial, frexp, ldexp

try:
    from math import fma  # from Python 3.13 on
except ImportError:

    def fma(a, b, c):
        """a * b + c with one rounding: exact in integers, and Python rounds a quotient of integers once."""
        (a, p), (b, q), (c, r) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
        return (a * b * r + c * p * q) / (p * q * r)


LOG2_E = 1.4426950408889634
LN2, LN2_REST = 0.693147180369123816490, 1.90821492927058770002e-10  # n * LN2 is exact for small n
EXP = [1 / factorial(k) for k in range(13, 1, -1)]  # Taylor: (e^r - 1 - r) / r^2
ARTANH = [2 / k for k in range(23, 1, -2)]  # (2 artanh(s) - 2 s) / s^3 in s^2
MAGIC = 3.0 * 2**51  # adding it rounds to an integer


def polynomial(x, terms):
    value = terms[0]
    for term in terms[1:]:
        value = fma(value, x, term)
    return value


def exp(x):
    """e^x = 2^n e^r with |r| <= ln(2) / 2."""
    n = fma(x, LOG2_E, MAGIC) - MAGIC
    r = fma(n, -LN2_REST, fma(n, -LN2, x))
    return ldexp(fma(polynomial(r, EXP), r * r, r) + 1, int(n))


def log(x):
    """log(2^n m) with m from sqrt(1/2) to sqrt(2); log m = 2 artanh(s)."""
    m, n = frexp(x)
    if m < 0.70710678118654752440:
        m, n = 2 * m, n - 1
    s = (m - 1) / (m + 1)
    p = fma(polynomial(s * s, ARTANH) * (s * s), s, 2 * s)
    return fma(float(n), LN2, fma(float(n), LN2_REST, p))


M32, M64, M128 = 2**32 - 1, 2**64 - 1, 2**128 - 1


def seed_words(entropy, count=8):
    """NumPy's SeedSequence(entropy).generate_state(count): O'Neill's seed_seq, for a list of integers below 2^32."""
    const = 0x43B0D7E5

    def hashed(value, factor):
        nonlocal const
        value, const = value ^ const, const * factor & M32
        value = value * const & M32
        return value ^ value >> 16

    def mixed(x, y):
        value = 0xCA01F9DD * x - 0x4973F715 * y & M32
        return value ^ value >> 16

    pool = [hashed(word, 0x931E8875) for word in (entropy + [0] * 4)[:4]]
    for source in range(4):
        for target in range(4):
            if source != target:
                pool[target] = mixed(pool[target], hashed(pool[source], 0x931E8875))
    for word in entropy[4:]:
        pool = [mixed(old, hashed(word, 0x931E8875)) for old in pool]
    const = 0x8B51F9DD
    return [hashed(pool[k % 4], 0x58F38DED) for k in range(count)]


class Generator:
    """NumPy's default_rng(entropy): PCG64, XSL-RR 128/64."""

    FACTOR = 0x2360ED051FC65DA44385DF649FCCF645

    def __init__(self, entropy):
        words = seed_words(entropy)
        high, low, inc_high, inc_low = (words[k] | words[k + 1] << 32 for k in range(0, 8, 2))
        self.step = ((inc_high << 64 | inc_low) << 1 | 1) & M128
        self.state = (self.step + (high << 64 | low)) * self.FACTOR + self.step & M128
        self.half = None  # the upper half of a number of 64 bits

    def bits64(self):
        self.state = self.state * self.FACTOR + self.step & M128
        word, turn = (self.state >> 64 ^ self.state) & M64, self.state >> 122
        return (word >> turn | word << (-turn & 63)) & M64

    def bits32(self):
        if self.half is not None:
            low, self.half = self.half, None
            return low
        bits = self.bits64()
        self.half = bits >> 32
        return bits & M32

    def uniform(self, low, high):
        return low + (high - low) * ((self.bits64() >> 11) * 2**-53)

    def at_most(self, limit):
        """An integer from 0 to limit: as many bits as limit has, until they are small enough."""
        while (value := self.bits32() & (1 << limit.bit_length()) - 1) > limit:
            pass
        return value

    def permutation(self, n):
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self.at_most(i)
            order[i], order[j] = order[j], order[i]
        return order


def main():
    own = Generator([7, 1])
    numbers, order = [own.uniform(-1, 1) for _ in range(3)], own.permutation(8)
    print("here  ", numbers, order)
    try:
        from numpy.random import default_rng
    except ImportError:
        print("NumPy is not installed")
        return
    other = default_rng([7, 1])
    print("NumPy ", [other.uniform(-1, 1) for _ in range(3)], other.permutation(8).tolist())


if __name__ == "__main__":
    main()
