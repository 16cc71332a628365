"""Builds a language model of 2.4 million random parameters, which vLLM serves as any other: runs in vLLM's environment.

    python build_tiny_model.py FOLDER

What it says means nothing, but it says it in words: a byte-level tokenizer is trained on this repository's pages, and the tokens
that are a space and letters are the likely ones, so that a text is split again into the tokens that it was made of. At a high
temperature all others come too, halves of characters among them. A chat template with tools is there. The weights are always
drawn alike, the tokenizer is as the pages are.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
VOCABULARY: Final = 2048
SEED: Final = 7
_SPECIAL: Final = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
# As byte-level tokenizers write it.
_SPACE: Final = "Ġ"
_TEMPLATE: Final = (
    "{%- if tools %}<|system|>Tools: {{ tools | tojson }}<|end|>{% endif -%}"
    "{%- for message in messages %}<|{{ message.role }}|>{{ message.content or '' }}"
    "{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor -%}"
    "<|end|>{% endfor -%}"
    "{%- if add_generation_prompt %}<|assistant|>{% endif -%}"
)


def main() -> None:
    # Here: neither is in our own environment.
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = Path(sys.argv[1])
    raw: Any = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))]
    raw.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=_SPECIAL[0], pad_token=_SPECIAL[0])
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=8192,
        eos_token_id=0,
        pad_token_id=0,
        bos_token_id=None,
        tie_word_embeddings=False,
        initializer_range=0.1,
    )
    made: Any = LlamaForCausalLM(config)
    with torch.no_grad():
        for token, id_ in raw.get_vocab().items():
            if token in _SPECIAL:
                made.lm_head.weight[id_] = 0
            elif not (token[0] == _SPACE and token[1:].isascii() and token[1:].isalpha()):
                made.lm_head.weight[id_] *= 0.25
    made.to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main()
