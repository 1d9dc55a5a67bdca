/* Exponentials and logarithms of lanes, to about a unit in the last place. */

/* e^x for x of at most 709; what is below -708 is taken for it. */
INLINE Lanes exp_of(Lanes x)
{
    Lanes at = pick(x > -708, x, all_lanes(-708)), magic = all_lanes(0x1.8p52);
    Lanes shifted = at * 0x1.71547652b82fep0 + magic, n = shifted - magic;
    Lanes r = (at - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33, p = all_lanes(1.0 / 6227020800.0);
    const double rest[] = {479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2, 1, 1};
    for (int i = 0; i < 13; i++) p = p * r + 1 / rest[i];
    Lanes power = (Lanes)(((Mask)shifted - (Mask)magic + 1023) << 52);
    return pick(x == x, p * power, x);
}

/* The logarithm: minus infinity at 0, NaN below. */
INLINE Lanes log_of(Lanes x)
{
    Mask tiny = x < 0x1p-1022, sound = (x > 0) & (x <= 0x1.fffffffffffffp1023);
    Lanes at = pick(sound, pick(tiny, x * 0x1p54, x), all_lanes(1));
    Mask exponent = ((Mask)at >> 52) - 1023;
    Lanes m = (Lanes)(((Mask)at & 0xfffffffffffff) | (Mask)all_lanes(1));
    Mask large = m > 1.4142135623730951;
    m = pick(large, m / 2, m);
    Lanes whole = __builtin_convertvector(exponent - large, Lanes) - pick(tiny, all_lanes(54), (Lanes){0});
    Lanes z = (m - 1) / (m + 1), square = z * z, p = all_lanes(1.0 / 21);
    for (int i = 19; i > 0; i -= 2) p = p * square + 1.0 / i;
    Lanes log = whole * 0x1.62e42feep-1 + (2 * z * p + whole * 0x1.a39ef35793c76p-33);
    return pick(sound, log, pick(x == 0, all_lanes(-__builtin_inf()), pick(x > 0, x, all_lanes(__builtin_nan("")))));
}
