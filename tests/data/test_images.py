"""Files to labelled images: folders, idx, npz, and what is wrong with some of them."""

import gzip
import struct
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clearformer.data.files.arrays import read_idx
from clearformer.data.fitting import fit_all, fitted
from clearformer.data.images import ImageCorpora, ImageSource, UnlabelledImageSource, decode, open_image, some_images
from clearformer.data.pixels import ImageConfig
from clearformer.data.split import place
from clearformer.errors import ConfigError, DataError, MachineError

FASHION = Path(__file__).parents[2].parent / "shared" / "data" / "fashion-mnist"
rng = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, "uint8")


def write_idx(path: Path, array: np.ndarray) -> Path:
    data = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, of two images and one; beside them what is no image."""
    for name in ("dog/b.png", "dog/deep/a.JPG", "cat/c.png"):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(7, 11, 3)).save(path)
    (tmp_path / "pets" / "dog" / "notes.txt").write_text("a dog")
    (tmp_path / "pets" / "dog" / ".hidden.png").write_bytes(b"")
    (tmp_path / "pets" / ".git").mkdir()
    (tmp_path / "pets" / "readme.md").write_text("pets")
    return tmp_path / "pets"


def test_a_folder_of_class_folders(folder: Path) -> None:
    source = ImageSource(path=folder)
    found = list(source.read())
    assert [(Path(image.name).name, image.label) for image in found] == [
        ("c.png", "cat"), ("b.png", "dog"), ("a.JPG", "dog"),
    ]  # fmt: skip
    assert source.classes() == ["cat", "dog"]
    assert found[0].open().size == (11, 7)


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_idx_files_find_their_labels(tmp_path: Path, suffix: str) -> None:
    pixels, labels = noise(5, 7, 11), np.array([10, 2, 0, 2, 1], "uint8")
    path = write_idx(tmp_path / f"t-images-idx3-ubyte{suffix}", pixels)
    write_idx(tmp_path / f"t-labels-idx1-ubyte{suffix}", labels)
    source = ImageSource(path=path)
    found = list(source.read())
    assert [image.label for image in found] == ["10", "2", "0", "2", "1"]
    assert source.classes() == ["0", "1", "2", "10"]  # numbers in their own order
    assert all(np.array_equal(np.asarray(file.open()), image) for file, image in zip(found, pixels))
    named = source.changed(names=[f"n{i}" for i in range(11)])
    assert [image.label for image in named.read()] == ["n10", "n2", "n0", "n2", "n1"]
    assert len(named.classes()) == 11
    with pytest.raises(DataError, match="class 10 is not among the 2 names"):
        list(source.changed(names=["a", "b"]).read())


def test_npz_files(tmp_path: Path) -> None:
    pixels = noise(3, 5, 7, 3)
    np.savez(tmp_path / "a.npz", images=pixels, labels=np.array(["x", "y", "x"]))
    np.savez(tmp_path / "b.npz", x_train=pixels, y_train=np.array([[1], [0], [1]]), floats=pixels / 255.0)
    found = list(ImageSource(path=tmp_path / "a.npz").read())
    assert [image.label for image in found] == ["x", "y", "x"]
    assert np.array_equal(np.asarray(found[1].open()), pixels[1])
    named = ImageSource(path=tmp_path / "b.npz", image="x_train", label="y_train")
    assert [image.label for image in named.read()] == ["1", "0", "1"]
    with pytest.raises(DataError, match="has no array `images`"):
        ImageSource(path=tmp_path / "b.npz").read()
    with pytest.raises(DataError, match=r"images of type float64 and shape \(3, 5, 7, 3\)"):
        ImageSource(path=tmp_path / "b.npz", image="floats", label="y_train").read()
    np.savez(tmp_path / "c.npz", images=pixels, labels=np.arange(2))
    with pytest.raises(DataError, match="has 3 images but 2 labels"):
        ImageSource(path=tmp_path / "c.npz").read()
    with pytest.raises(DataError, match="class x is not among the 2 names"):
        list(ImageSource(path=tmp_path / "a.npz", names=("x", "y")).read())
    with open(tmp_path / "d.npz", "wb") as file:
        np.save(file, pixels)
    with pytest.raises(DataError, match=r"is damaged, or not an .npz file"):
        ImageSource(path=tmp_path / "d.npz").read()


def test_parquet_files(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    path.write_bytes(b"PAR1")
    source = ImageSource(path=path)
    try:
        import pyarrow
    except ModuleNotFoundError:
        with pytest.raises(MachineError, match="pyarrow, which is required"):
            next(source.read())
        return
    from pyarrow import parquet

    Image.fromarray(noise(5, 7)).save(tmp_path / "a.png")
    content = {"bytes": (tmp_path / "a.png").read_bytes(), "path": "a.png"}
    parquet.write_table(pyarrow.table({"image": [content] * 2, "label": [1, 0]}), path)
    found = list(source.read())
    assert [image.label for image in found] == ["1", "0"]
    assert found[0].open().size == (7, 5)


def write_parquet(path: Path, **columns: list[object]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.mark.parametrize(("axes", "problem"), [(200, "an array of 200 axes"), (4, "GiB, more than 100 times")])
def test_an_idx_file_of_many_or_huge_axes(tmp_path: Path, axes: int, problem: str) -> None:
    path = tmp_path / "t-images-idx3-ubyte"
    path.write_bytes(bytes([0, 0, 8, axes]) + (2**31 - 1).to_bytes(4, "big") * axes)
    with pytest.raises(DataError, match=problem):
        read_idx(path)


@pytest.mark.parametrize("kind", ["npz", "idx", "parquet"])
def test_an_album_needs_no_labels_and_takes_those_that_are_there(tmp_path: Path, kind: str) -> None:
    pixels, labels = np.arange(105, dtype="uint8").reshape(3, 5, 7), np.array([2, 0, 2], "uint8")
    match kind:
        case "npz":
            path = tmp_path / "a.npz"
            np.savez(path, images=pixels)
            add = partial(np.savez, path, images=pixels, labels=labels)
            problem = "has no array `labels`"
        case "idx":
            path = write_idx(tmp_path / "t-images-idx3-ubyte", pixels)
            add = partial(write_idx, tmp_path / "t-labels-idx1-ubyte", labels)
            problem = "t-labels-idx1-ubyte does not exist"
        case "parquet":
            files = []
            for one in pixels:
                Image.fromarray(one).save(tmp_path / "a.png")
                files.append((tmp_path / "a.png").read_bytes())
            path = write_parquet(tmp_path / "a.parquet", image=files)
            add = partial(write_parquet, path, image=files, label=labels.tolist())
            problem = r"a\.parquet: no column `label`\nhint: the columns are image; choose with --set data"
    album = UnlabelledImageSource(path=path)
    assert album.classes() == ["image"]
    assert [np.asarray(image.open()).tolist() for image in album.read()] == pixels.tolist()
    with pytest.raises(DataError, match=problem):
        list(ImageSource(path=path).read())
    if kind != "idx":
        with pytest.raises(DataError, match="shown"):
            list(album.changed(label="shown").read())
    add()
    assert [image.label for image in album.read()] == ["2", "0", "2"]


def test_an_album_takes_an_idx_file_of_any_name(tmp_path: Path) -> None:
    path = write_idx(tmp_path / "faces.idx3-ubyte", np.zeros((3, 5, 7), "uint8"))
    assert [image.label for image in UnlabelledImageSource(path=path).read()] == ["image"] * 3


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.csv", b"1,2", "unsupported file type"),
        ("x-images-idx3-ubyte", b"\0\0\x09\x03", "is not an idx file of uint8 values"),
        ("x-images-idx3-ubyte", b"\0\0\x08", "is not an idx file of uint8 values"),
        ("x-images-idx3-ubyte", b"\x89PNG\r\n", "is not an idx file of uint8 values"),
        (
            "x-images-idx3-ubyte",
            b"\0\0\x08\x03" + struct.pack(">3i", 2, 3, 5) + b"\0" * 29,
            r"29 bytes of data, but shape \[2, 3, 5\] needs 30",
        ),
        ("x-images-idx3-ubyte.gz", gzip.compress(b"\0\0\x08\1\0\0\3\xe7" + b"\0" * 999, mtime=0)[:-9], "is damaged"),
        ("a.npz", b"PK\x03\x04", "is damaged, or not an .npz file"),
    ],
)
def test_what_is_no_source_is_said(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=match):
        ImageSource(path=tmp_path / name).read()


def test_folders_without_images(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        ImageSource(path=tmp_path / "nowhere").read()
    (tmp_path / "bare").mkdir()
    with pytest.raises(DataError, match=r"is empty\nhint: .* in a folder named after its class"):
        next(ImageSource(path=tmp_path / "bare").read())
    flat = ImageSource(path=folder / "dog" / "deep")
    assert flat.classes() == ["image"]
    assert [Path(image.name).parent for image in flat.read()] == [flat.path] * len(list(flat.path.iterdir()))


def test_a_folder_of_other_files_has_no_images(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(DataError, match="has no file for --images"):
        next(ImageSource(path=tmp_path).read())


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_dataset_has_images_and_the_names_of_its_classes(tmp_path: Path, is_folder: bool) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bar()
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    pixels = np.arange(105, dtype="uint8").reshape(3, 5, 7)
    rows = {"image": list(map(Image.fromarray, pixels)), "label": [1, 0, 1]}
    dataset = datasets.Dataset.from_dict(rows, features=features)
    path = tmp_path / ("a" if is_folder else "a.parquet")
    dataset.save_to_disk(path) if is_folder else dataset.to_parquet(path)
    images = list(ImageSource(path=path).read())
    assert [image.label for image in images] == ["dog", "cat", "dog"]
    assert [np.asarray(image.open()).tolist() for image in images] == pixels.tolist()
    assert ImageSource(path=path, names=("x", "y")).classes() == ["x", "y"]
    assert [image.label for image in ImageSource(path=path, names=("x", "y")).read()] == ["y", "x", "y"]


def test_damaged_images_are_named_and_left_out(folder: Path) -> None:
    whole = (folder / "cat" / "c.png").read_bytes()
    (folder / "cat" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "cat" / "empty.png").write_bytes(b"")
    (folder / "dog" / "words.jpg").write_text("not an image")
    broken: list[str] = []
    image = ImageConfig(size=5, channels=3)
    found = list(fit_all(ImageSource(path=folder).read(), image, broken))
    assert [image.label for image in found] == ["cat", "dog", "dog"]
    assert sorted(Path(told.split()[0]).name for told in broken) == ["cut.png", "empty.png", "words.jpg"]
    assert all("cannot be read: it is damaged or not an image" in told for told in broken)
    with pytest.raises(DataError, match=r"cut\.png cannot be read"):
        open_image(folder / "cat" / "cut.png")
    n, some = some_images(ImageSource(path=folder), 100)
    assert (n, len(some)) == (6, 3)


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte", "a.npz", "a.parquet"])
def test_a_file_of_many_is_not_taken_for_a_damaged_image(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"many")
    with pytest.raises(DataError, match=f"{name} contains many images"):
        open_image(tmp_path / name)


def test_a_photograph_is_turned_the_right_way_up(tmp_path: Path) -> None:
    image = Image.fromarray(noise(5, 11, 3))
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned by 90°
    image.save(tmp_path / "turned.png", exif=exif)
    assert open_image(tmp_path / "turned.png").size == (5, 11)


def test_an_image_becomes_square_in_three_ways() -> None:
    wide = np.zeros((10, 30, 3), "uint8")
    wide[:, 10:20] = 200  # the middle square
    image = Image.fromarray(wide)
    shapes = {fit: fitted(image, ImageConfig(size=10, channels=3, fit=fit)) for fit in ("crop", "pad", "stretch")}
    assert all(pixels.shape == (3, 10, 10) and pixels.dtype == np.uint8 for pixels in shapes.values())
    assert (shapes["crop"] == 200).all()
    assert not shapes["pad"][:, :3].any()
    assert not shapes["pad"][:, -3:].any()
    assert shapes["stretch"][0, 5, [0, 5, 9]].tolist() == [0, 200, 0]
    exact = Image.fromarray(noise(7, 7))
    assert np.array_equal(fitted(exact, ImageConfig(size=7, channels=1))[0], np.asarray(exact))


def test_a_margin_is_cut_off() -> None:
    framed = np.full((16, 16), 9, "uint8")
    framed[1:-1, 1:-1] = 77
    image = ImageConfig(size=14, channels=1, margin=1 / 16)
    assert (fitted(Image.fromarray(framed), image) == 77).all()


def test_colours_come_and_go() -> None:
    grey, red = Image.fromarray(noise(7, 7)), Image.new("RGB", (7, 7), (255, 0, 0))
    three = fitted(grey, ImageConfig(size=7, channels=3))
    assert np.array_equal(three[0], three[2])
    assert (fitted(red, ImageConfig(size=7, channels=1)) == 76).all()  # 0.299 of 255
    see_through = Image.new("RGBA", (7, 7), (1, 2, 3, 4))
    assert fitted(see_through, ImageConfig(size=7, channels=3))[:, 0, 0].tolist() == [1, 2, 3]


def test_greys_of_16_bits_keep_their_shades(tmp_path: Path) -> None:
    shades = (np.arange(49) * 1337).astype("uint16").reshape(7, 7)
    Image.fromarray(shades).save(tmp_path / "deep.png")
    found = fitted(open_image(tmp_path / "deep.png"), ImageConfig(size=7, channels=1))
    assert np.array_equal(found[0], shades // 256)


def test_lab_becomes_grey(tmp_path: Path) -> None:
    Image.new("LAB", (7, 7), (255, 0, 0)).save(tmp_path / "lab.tif")
    assert fitted(open_image(tmp_path / "lab.tif"), ImageConfig(size=7, channels=1)).shape == (1, 7, 7)


def test_where_an_image_goes_is_its_own(tmp_path: Path) -> None:
    """By its pixels as they were: the same in any order and at any size; copies stay together."""
    pixels = noise(200, 5, 5)
    np.savez(tmp_path / "a.npz", images=np.concatenate([pixels, pixels[::-1]]), labels=np.zeros(400, int))
    data = ImageCorpora(train={"path": tmp_path / "a.npz"}, held_out=0.2, held_out_test=0.1)
    splits = []
    for size in (5, 3):
        found = list(fit_all(data.train.read(), ImageConfig(size=size, channels=1), []))
        splits.append([data.split_of(image.place) for image in found])
    assert splits[0] == splits[1]
    assert splits[0][:200] == splits[0][200:][::-1]
    assert splits[0][0] == data.split_of(place(pixels[0].tobytes()))
    assert {name: 20 < splits[0].count(name) < 100 for name in ("valid", "test")} == {"valid": True, "test": True}


def test_classes_are_called_alike_in_all_splits() -> None:
    data = ImageCorpora(root="r", train={"path": "a.npz", "names": ["x", "y"]}, test={"path": "b.npz"})
    assert data.source("test") == ImageSource(path=Path("r/b.npz"), names=("x", "y"))
    assert data.source("valid") is None


@pytest.mark.data
@pytest.mark.skipif(not FASHION.exists(), reason="needs ../shared/data/fashion-mnist")
def test_fashion_mnist_as_it_is_published() -> None:
    """Its README: 6,000 training images a class, 1,000 test ones."""
    for name, n in (("train", 6000), ("t10k", 1000)):
        found = list(ImageSource(path=FASHION / f"{name}-images-idx3-ubyte.gz").read())
        assert Counter(image.label for image in found) == {str(k): n for k in range(10)}
        assert found[0].open().size == (28, 28)


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="`mean` has 3 values for 1 channel"):
        ImageConfig.parse({"channels": 1, "mean": [0.5, 0.5, 0.5]}, "x.toml: [image]")
    with pytest.raises(ConfigError, match="channels = 2 is not 1 or 3"):
        ImageConfig.parse({"channels": 2}, "x.toml: [image]")


def test_formats_and_pixels_can_be_limited(tmp_path: Path) -> None:
    pixels = noise(7, 11)
    Image.fromarray(pixels).save(tmp_path / "a.ppm")
    Image.fromarray(pixels).save(tmp_path / "a.png")
    body = (tmp_path / "a.png").read_bytes()
    assert np.asarray(decode(body, "the image", ("PNG",), 77)).tolist() == pixels.tolist()
    with pytest.raises(DataError, match="the image has more than 76 pixels"):
        decode(body, "the image", ("PNG",), 76)
    assert decode((tmp_path / "a.ppm").read_bytes(), "the image").size == (11, 7)
    with pytest.raises(DataError, match="the image cannot be read: it is damaged or not an image"):
        decode((tmp_path / "a.ppm").read_bytes(), "the image", ("PNG", "JPEG"))
