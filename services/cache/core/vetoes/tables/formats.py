"""What a request says of the form of its answer. Phrases of several words are written with _ ."""

from __future__ import annotations

from typing import Final

# "value: words". Texts must agree on the values.
_WORDS: Final = """
short: briefly concise concisely in_short tldr 简短 简要 简单说 简洁 简述 一句话 用一句话 in_one_sentence one_sentence \
single_sentence one_line in_a_sentence
long: in_detail in_depth at_length detailed 详细 详述 详尽 详细地
simple: simple_terms plain_english eli5 simple_words simply 通俗 通俗易懂 大白话
steps: step_by_step 一步一步 分步 逐步
list: bullet_points bullets bulleted as_a_list numbered_list 用列表 列成列表 分点
table: as_a_table in_a_table table_format in_table_form as_table 用表格 以表格 列成表格 制表
json: as_json in_json json_format 用json json格式 以json
xml: as_xml in_xml xml_format
yaml: as_yaml in_yaml yaml_format
csv: as_csv csv_format
markdown: in_markdown as_markdown
code: code_only only_code with_code code_example example_code 示例代码 只要代码 代码示例
essay: essay 作文 论文
poem: poem haiku sonnet 诗歌 打油诗
english: in_english 用英文 用英语
chinese: in_chinese 用中文
french: in_french 用法语
german: in_german 用德语
spanish: in_spanish 用西班牙语
japanese: in_japanese 用日语
"""

# word: value
WORDS: Final[dict[str, str]] = {
    word: line.partition(":")[0] for line in _WORDS.strip().splitlines() for word in line.partition(":")[2].split()
}
PHRASES: Final = frozenset(word for word in WORDS if "_" in word)
