"""Stain normalization against its equations, written once more in numpy, float64."""

import numpy as np
import pytest
import torch

import normkit as nk

HEMATOXYLIN_EOSIN = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11]]).T
OTHER_SCANNER = np.array([[0.50, 0.75, 0.43], [0.25, 0.85, 0.46]]).T


def tissue(stains=HEMATOXYLIN_EOSIN, height=20, width=23, seed=0, concentrations=None):
    """An image of (3, height, width): tissue of two stains, a tenth of it background."""
    random = np.random.default_rng(seed)
    amounts = random.gamma(2.0, 0.4, (2, height * width)) if concentrations is None else concentrations
    if concentrations is None:
        amounts[:, : height * width // 10] = 0.01
    stains = stains / np.linalg.norm(stains, axis=0)
    return torch.from_numpy((240 * np.exp(-stains @ amounts) - 1).clip(0, 255).reshape(3, height, width))


def rank(values, q):
    k = 1 + round(0.01 * q * (len(values) - 1))
    return np.sort(values)[k - 1]


def stains_of(image):
    od = -np.log((image.reshape(3, -1).T + 1) / 240)
    kept = od[(od >= 0.15).all(1)]
    _, vectors = np.linalg.eigh(np.cov(kept, rowvar=False))
    vectors = vectors[:, 1:] * np.sign(vectors[0, 1:])
    t = kept @ vectors
    phi = np.arctan2(t[:, 1], t[:, 0])
    pair = [vectors @ [np.cos(rank(phi, q)), np.sin(rank(phi, q))] for q in (1, 99)]
    stains = np.stack(pair if pair[0][0] > pair[1][0] else pair[::-1], 1)
    amounts = np.linalg.lstsq(stains, od.T, rcond=None)[0]
    return stains, amounts, np.array([rank(row, 99) for row in amounts])


def macenko(image, stains, high):
    _, amounts, own = stains_of(image)
    return np.minimum(240 * np.exp(-stains @ (amounts * (high / own)[:, None])), 255).reshape(image.shape)


XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
WHITE = np.array([0.95047, 1, 1.08883])


def to_lab(image):
    v = image.reshape(3, -1).T / 255
    linear = np.array([[((u + 0.055) / 1.055) ** 2.4 if u > 0.04045 else u / 12.92 for u in row] for row in v])
    xyz = linear @ XYZ.T / WHITE
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
    return np.stack([(116 * y - 16) * 2.55, 500 * (x - y) + 128, 200 * (y - z) + 128])


def check_lab(rgb, want):
    """Compare in Lab, where the image needs no inverse, the pixels that were not clipped."""
    inside = ((rgb > 0) & (rgb < 255)).all(0).flatten()
    assert inside.mean() > 0.5
    np.testing.assert_allclose(to_lab(rgb)[:, inside], want[:, inside], rtol=1e-6, atol=1e-4)


def test_macenko_agrees_with_the_equations():
    image, reference = tissue(), tissue(OTHER_SCANNER, seed=1)
    module = nk.create("stain-norm", dtype=torch.float64)
    start = np.array([[0.5626, 0.2159], [0.7201, 0.8012], [0.4062, 0.5581]]), np.array([1.9705, 1.0308])
    np.testing.assert_allclose(module(image), macenko(image.numpy(), *start), rtol=1e-6)
    assert module.fit(reference) is module
    stains, _, high = stains_of(reference.numpy())
    np.testing.assert_allclose(module.stain_matrix, stains)
    np.testing.assert_allclose(module.max_concentration, high)
    np.testing.assert_allclose(module(image), macenko(image.numpy(), stains, high))
    np.testing.assert_allclose(module(reference), (reference + 1).clamp(max=255), rtol=0.05)


def test_reinhard_agrees_with_the_equations():
    image, reference = tissue(), tissue(OTHER_SCANNER, seed=1)
    lab, wanted = to_lab(image.numpy()), to_lab(reference.numpy())
    centered = lab - lab.mean(1, keepdims=True)
    std, spread = lab.std(1, ddof=1, keepdims=True), wanted.std(1, ddof=1, keepdims=True)
    module = nk.create("stain-norm", method="reinhard", dtype=torch.float64).fit(reference)
    check_lab(module(image).numpy(), centered / std * spread + wanted.mean(1, keepdims=True))


@pytest.mark.parametrize("flatter", [True, False])
def test_modified_reinhard_stretches_light_only(flatter):
    image, reference = tissue(), tissue(OTHER_SCANNER, seed=1)
    if not flatter:
        image, reference = reference, image
    lab, wanted = to_lab(image.numpy()), to_lab(reference.numpy())
    q = 1 - lab[0].std(ddof=1) / wanted[0].std(ddof=1)
    q = q if q > 0 else 0.05
    want = lab - lab.mean(1, keepdims=True) + wanted.mean(1, keepdims=True)
    want[0] = lab[0].mean() + (lab[0] - lab[0].mean()) * (1 + q)
    module = nk.create("stain-norm", method="reinhard-modified", dtype=torch.float64).fit(reference)
    check_lab(module(image).numpy(), want)


@pytest.mark.parametrize("method", ["macenko", "reinhard", "reinhard-modified"])
def test_images_of_a_batch_are_normalized_one_by_one(method):
    module = nk.create("stain-norm", method=method, dtype=torch.float64).fit(tissue(seed=5))
    batch = torch.stack([tissue(seed=s) for s in range(3)])
    torch.testing.assert_close(module(batch), torch.stack([module(image) for image in batch]))
    whole = batch.round().to(torch.uint8)
    assert module(whole).dtype == torch.float32
    torch.testing.assert_close(module(whole), module(whole.double()).float(), rtol=1e-3, atol=1e-2)


def test_a_saved_reference_is_loaded():
    fitted = nk.create("stain-norm", method="reinhard").fit(tissue())
    other = nk.create("stain-norm", method="reinhard")
    other.load_state_dict(fitted.state_dict())
    torch.testing.assert_close(other(tissue(seed=1)), fitted(tissue(seed=1)))


@pytest.mark.parametrize(
    "image", [torch.full((3, 8, 9), 250.0), torch.full((3, 8, 9), 100.0), torch.zeros(3, 8, 9)], ids=str
)
def test_an_image_without_two_stains_is_returned_and_not_fitted(image):
    module = nk.create("stain-norm")
    torch.testing.assert_close(module(image), image, rtol=0, atol=0)
    before = module.stain_matrix.clone()
    with pytest.raises(ValueError, match="image has too little"):
        module.fit(image)
    torch.testing.assert_close(module.stain_matrix, before, rtol=0, atol=0)


@pytest.mark.parametrize("method", ["reinhard", "reinhard-modified"])
def test_constant_images_give_no_nan(method):
    flat = torch.full((3, 4, 5), 128.0)
    for reference, image in ((tissue(), flat), (flat, tissue()), (flat, flat)):
        assert torch.isfinite(nk.create("stain-norm", method=method).fit(reference)(image)).all()


def test_mistakes_are_named():
    with pytest.raises(RuntimeError, match="fit"):
        nk.create("stain-norm", method="reinhard")(tissue())
    with pytest.raises(ValueError, match=r"image must have shape \(\.\.\., 3, H, W\)"):
        nk.create("stain-norm")(torch.rand(4, 5, 6))
    with pytest.raises(ValueError, match=r"\(3, H, W\)"):
        nk.create("stain-norm").fit(torch.rand(2, 3, 5, 6))
    with pytest.raises(ValueError, match="method must be one of"):
        nk.create("stain-norm", method="vahadane")


@pytest.mark.parametrize("method", ["macenko", "reinhard"])
def test_a_reference_of_0_to_1_is_refused(method):
    module = nk.create("stain-norm", method=method)
    with pytest.raises(ValueError, match=r"to fit, image must be of 0 \.\. 255, but its largest value is 0\.9"):
        module.fit(tissue().clamp(max=240) / 255)


def test_slides_of_two_scanners_come_together():
    """The claim: equal concentrations, two stain matrices; the mean colours' distance falls tenfold or more."""
    amounts = np.random.default_rng(0).gamma(2.0, 0.4, (2, 40 * 40))
    slides = [tissue(s, 40, 40, concentrations=amounts) for s in (HEMATOXYLIN_EOSIN, OTHER_SCANNER)]
    module = nk.create("stain-norm", dtype=torch.float64)

    def apart(a, b):
        return (a.mean((1, 2)) - b.mean((1, 2))).norm().item()

    assert apart(*slides) > 10 * apart(*map(module, slides))


@pytest.mark.parametrize("pixels, changes", [(3, False), (4, True)])
def test_tissue_of_a_hundredth_of_the_image_is_enough(pixels, changes):
    amounts = np.full((2, 400), 0.05)  # too pale to count
    amounts[:, :pixels] = np.array([[2.0, 0.8, 1.5, 1.0], [0.8, 2.0, 1.0, 1.5]])[:, :pixels]
    image = tissue(height=20, width=20, concentrations=amounts)
    assert torch.equal(nk.create("stain-norm", dtype=torch.float64)(image), image) != changes


def test_an_image_with_a_single_pixel_of_tissue_comes_back():
    image = torch.full((3, 4, 5), 250.0, dtype=torch.float64)
    image[:, 1, 2] = torch.tensor([100.0, 60.0, 120.0])
    torch.testing.assert_close(nk.create("stain-norm")(image), image)
