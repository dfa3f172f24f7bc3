"""Raw bytes and classes, from tokenizers built here."""

import json

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from infernix_plugin.errors import CheckpointError
from infernix_plugin.matching import TokenClass, TokenDomain
from infernix_plugin.matching.domain import bitset
from infernix_plugin.matching.pretrained import _ALPHABET, require_vocabulary

TEXT = "héllo  wörld\n\t中文 😀 e\u0301 <x>\\ \x00\x7f\u2581"


def byte_level(**more: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE with one merge and a half character."""
    vocabulary = {char: token for token, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    space, half = "\u0120", "\u00e4\u00b8"  # " " and the first two bytes of 中, as the alphabet writes them
    for piece in (f"{space}w", half):
        vocabulary[piece] = len(vocabulary)
    model = models.BPE(vocab=vocabulary, merges=[(space, "w"), tuple(half)])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|image_pad|>", "<|vision_start|>", "plain special"])
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("[TOOL]", special=False), "ordinary é"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", **more)


def sentencepiece_like(model: str) -> PreTrainedTokenizerFast:
    """Byte fallback with ``▁`` for spaces, as a Unigram or a BPE model."""
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "\u2581",
        "h",
        "e",
        "l",
        "o",
        "\u2581w",
    ]
    if model == "unigram":
        scores = [(piece, -1.0 if len(piece) < 3 else -10.0) for piece in pieces]
        tokenizer = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=True))
    else:
        vocabulary = {piece: token for token, piece in enumerate([*pieces, "w"])}
        tokenizer = Tokenizer(models.BPE(vocabulary, [("\u2581", "w")], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("\u2581\u2581", normalized=False), AddedToken("<tool>", special=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


def written(domain: TokenDomain, tokens: list[int]) -> bytes:
    return b"".join(map(domain.token_bytes, tokens))


def test_byte_level_tokens_write_the_encoded_text() -> None:
    tokenizer = byte_level()
    domain = TokenDomain.from_pretrained(tokenizer)
    assert written(domain, tokenizer.encode(TEXT)) == TEXT.encode()
    assert [domain.token_bytes(domain.byte_token(byte)) for byte in range(256)] == [
        bytes([byte]) for byte in range(256)
    ]


def test_the_byte_alphabet_is_that_of_byte_level_bpe() -> None:
    assert set(_ALPHABET) == set(pre_tokenizers.ByteLevel.alphabet())
    encoder = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for char in map(chr, range(0x250)):
        ((encoded, _),) = encoder.pre_tokenize_str(char)
        assert bytes(_ALPHABET[letter] for letter in encoded) == char.encode()


def test_pieces_of_half_a_character_keep_their_bytes() -> None:
    domain = TokenDomain.from_pretrained(byte_level())
    assert domain.token_bytes(257) == "中".encode()[:2]


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_byte_fallback_tokens_write_the_encoded_text(model: str) -> None:
    tokenizer = sentencepiece_like(model)
    domain = TokenDomain.from_pretrained(tokenizer)
    text = "hello  wörld 中 😀\n"
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert written(domain, tokens) == text.encode()
    assert domain.token_bytes(tokenizer.convert_tokens_to_ids("\u2581w")) == b" w"
    assert domain.byte_token(0xE4) == tokenizer.convert_tokens_to_ids("<0xE4>")
    assert domain.token_class(domain.byte_token(0xE4)) is TokenClass.TEXT


def test_added_tokens_have_classes() -> None:
    tokenizer = byte_level()
    domain = TokenDomain.from_pretrained(tokenizer)
    classes = {
        text: domain.token_class(tokenizer.convert_tokens_to_ids(text))
        for text in ("<|end|>", "<|image_pad|>", "<|vision_start|>", "plain special", "<think>", "[TOOL]", "ordinary é")
    }
    assert classes == {
        "<|end|>": TokenClass.STOP,
        "<|image_pad|>": TokenClass.UNUSED,
        "<|vision_start|>": TokenClass.UNUSED,
        "plain special": TokenClass.CONTROL,
        "<think>": TokenClass.CONTROL,
        "[TOOL]": TokenClass.CONTROL,
        "ordinary é": TokenClass.TEXT,
    }
    assert domain.token_bytes(tokenizer.convert_tokens_to_ids("ordinary é")) == "ordinary é".encode()
    assert domain.control_id("<think>") == tokenizer.convert_tokens_to_ids("<think>")
    assert domain.control_id("ordinary é") is None
    assert domain.control_id("<nothing>") is None


def test_a_marker_and_an_ordinary_token_with_its_spelling_stay_apart() -> None:
    domain = TokenDomain([b"<x>", b"<x>"], control={"<x>": 1})
    assert [domain.token_class(token) for token in (0, 1)] == [TokenClass.TEXT, TokenClass.CONTROL]
    assert domain.control_id("<x>") == 1


@pytest.mark.parametrize(("listed", "expected"), [(256, {256}), ([256, 257], {256, 257}), (None, set())])
def test_stop_ids_of_the_generation_config_are_added(tmp_path, listed, expected) -> None:
    tokenizer = byte_level()
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": listed}))
    own = tokenizer.eos_token_id
    assert set(TokenDomain.from_pretrained(tmp_path).stop_ids) == {own, *expected}
    assert set(TokenDomain.from_pretrained(str(tmp_path), extra_stop_ids=[3]).stop_ids) == {own, 3, *expected}


def test_without_a_directory_the_stop_id_is_the_tokenizers() -> None:
    tokenizer = byte_level()
    assert TokenDomain.from_pretrained(tokenizer).stop_ids == (tokenizer.eos_token_id,)


def test_subclasses_of_a_tokenizer_are_read_alike() -> None:
    plain, wrapped = byte_level(), byte_level()
    wrapped.__class__ = type("Cached", (type(wrapped),), {})
    one, other = TokenDomain.from_pretrained(plain), TokenDomain.from_pretrained(wrapped)
    assert [one.token_bytes(token) for token in range(one.vocab_size)] == [
        other.token_bytes(token) for token in range(other.vocab_size)
    ]


def test_a_vocabulary_without_a_byte_form_is_refused() -> None:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(ValueError, match="WordPiece"):
        TokenDomain.from_pretrained(PreTrainedTokenizerFast(tokenizer_object=tokenizer))


def test_padding_cannot_be_generated() -> None:
    domain = TokenDomain([b"a", b""], stop=[1], vocab_size=70)
    assert domain.mask_words == 3
    assert domain.ids_of_class(TokenClass.UNUSED) == list(range(2, 70))
    assert [domain.is_generable(token) for token in (-1, 0, 1, 2, 69, 70)] == [False, True, False, False, False, False]
    assert [domain.is_stop(token) for token in (-1, 0, 1, 70)] == [False, False, True, False]


def test_a_model_with_fewer_ids_than_the_tokenizer_cuts_it() -> None:
    domain = TokenDomain.from_pretrained(byte_level(), vocab_size=100)
    assert domain.vocab_size == 100
    assert domain.stop_ids == ()
    assert domain.control_id("<think>") is None


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 100])
def test_bitsets_have_the_smallest_id_in_the_lowest_bit(size: int) -> None:
    members = [token for token in range(size) if token % 3 == 0 or token == size - 1]
    bits = bitset(members, size)
    assert bits.dtype == np.int32
    assert len(bits) == (size + 31) // 32
    for token in range(len(bits) * 32):
        assert bool(int(bits[token // 32]) >> token % 32 & 1) == (token in members)


def test_bitsets_partition_what_can_be_generated() -> None:
    domain = TokenDomain([b"a", b"b", b"<e>", b"<x>", b""], control={"<x>": 3, "<e>": 2}, stop=[2])
    assert domain.stop_bits.tolist() == [1 << 2]
    assert domain.generable_bits.tolist() == [1 | 1 << 1 | 1 << 3]
    with pytest.raises(ValueError, match="read-only"):
        domain.stop_bits[0] = 0


@pytest.mark.parametrize("bad", [{"stop": [-1]}, {"stop": [5]}, {"unused": [5]}])
def test_ids_outside_the_vocabulary_are_refused(bad: dict[str, list[int]]) -> None:
    with pytest.raises(ValueError, match="outside"):
        TokenDomain([b"a"], **bad)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("Qwen2Tokenizer", "merges.txt or tokenizer.json or vocab.json"),
        ("T5Tokenizer", "spiece.model or tokenizer.json"),
    ],
)
def test_a_directory_without_a_vocabulary(tmp_path, kind, names):
    """transformers makes a tokenizer of it, with nothing but added tokens."""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    for judge in (require_vocabulary, TokenDomain.from_pretrained):
        with pytest.raises(CheckpointError) as error:
            judge(tmp_path)
        assert str(error.value).endswith(f"has no vocabulary: there is no {names}")


@pytest.mark.parametrize(
    "name",
    [
        *("tokenizer.json", "tokenizer.model", "tokenizer.model.v3", "vocab.json", "vocab.txt", "merges.txt"),
        *("tekken.json", "spiece.model", "qwen.tiktoken", "source.spm", "model.gguf"),
    ],
)
def test_any_file_of_pieces_is_a_vocabulary(tmp_path, name):
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    (tmp_path / name).touch()
    require_vocabulary(tmp_path)


@pytest.mark.parametrize(
    "config",
    [
        {"tokenizer_class": "ByT5Tokenizer"},
        {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}},
        {"tokenizer_class": "Nobody's"},
        None,
    ],
)
def test_tokenizers_that_need_no_vocabulary_or_that_cannot_be_loaded(tmp_path, config):
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    require_vocabulary(tmp_path)
