"""Names that are written in small letters too, and those that mean the same."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.tables.words import words

# a=b: two names of one thing. The first is compared.
_SAME: Final = """
uk=britain=united_kingdom=great_britain=英国 us=usa=america=united_states=美国 eu=europe=european=欧盟
uae=united_arab_emirates nyc=new_york=纽约 la=los_angeles=洛杉矶 js=javascript ts=typescript py=python golang=go_lang
k8s=kubernetes postgres=postgresql china=chinese=中国=中文=汉语 japan=japanese=日本=日语=日文
france=french=法国=法语=法文 germany=german=德国=德语=德文 spain=spanish=西班牙=西班牙语 italy=italian=意大利=意大利语
russia=russian=俄罗斯=俄语=俄国 korea=korean=韩国=韩语 english=英语=英文 india=indian=印度 brazil=brazilian=巴西
canada=canadian=加拿大 australia=australian=澳大利亚=澳洲 mexico=mexican=墨西哥 thailand=thai=泰国=泰语
vietnam=vietnamese=越南=越南语 portugal=portuguese=葡萄牙=葡萄牙语 turkey=turkish=土耳其=土耳其语
greece=greek=希腊=希腊语 netherlands=dutch=荷兰=荷兰语 sweden=swedish=瑞典=瑞典语 norway=norwegian=挪威
denmark=danish=丹麦 finland=finnish=芬兰 poland=polish=波兰 ukraine=ukrainian=乌克兰 egypt=egyptian=埃及
arabic=阿拉伯语 hebrew=希伯来语 ireland=irish=爱尔兰 scotland=scottish=苏格兰 wales=welsh=威尔士 england=英格兰
switzerland=swiss=瑞士 austria=austrian=奥地利 belgium=belgian=比利时 singapore=新加坡 malaysia=malaysian=马来西亚
indonesia=indonesian=印尼=印度尼西亚 philippines=filipino=菲律宾 taiwan=taiwanese=台湾 london=伦敦 paris=巴黎
berlin=柏林 madrid=马德里 rome=罗马 tokyo=东京 seoul=首尔 moscow=莫斯科 sydney=悉尼 beijing=北京 shanghai=上海
2fa=mfa=two_factor_authentication=two_factor=multi_factor_authentication=双重认证=两步验证=双因素认证
wifi=wi_fi=无线网 wechat=微信 alipay=支付宝 taobao=淘宝 iphone=苹果手机 google=谷歌 microsoft=微软 amazon=亚马逊
apple=苹果公司
"""

# Names without another name; cities, makers, programs, languages of programs.
_ALONE: Final = """
amsterdam athens bangkok barcelona boston bristol brussels cairo chicago dallas delhi dubai dublin edinburgh florence
frankfurt geneva glasgow hamburg helsinki houston istanbul jakarta johannesburg leeds lisbon liverpool manchester
manila melbourne miami milan montreal mumbai munich nairobi osaka oslo philadelphia prague seattle stockholm toronto
vancouver venice vienna warsaw zurich hawaii florida texas california africa asia antarctica argentina chile colombia
peru cuba nigeria kenya ethiopia morocco iran iraq israel pakistan bangladesh nepal iceland hungary romania bulgaria
croatia serbia python java javascript typescript rust golang kotlin swift ruby php perl scala haskell lua cobol
fortran matlab react vue angular svelte django flask fastapi rails laravel spring nodejs numpy pandas pytorch
tensorflow keras postgresql mysql mariadb sqlite oracle mongodb redis valkey cassandra elasticsearch kafka rabbitmq
docker podman kubernetes terraform ansible jenkins nginx apache linux ubuntu debian fedora windows macos android ios
chrome firefox safari edge excel word powerpoint outlook gmail slack zoom teams discord telegram whatsapp signal json
xml yaml csv toml html pdf docx markdown latex jpeg jpg png gif svg webp mp3 mp4 wav http https ftp ssh tcp udp smtp
imap pop3 usb bluetooth wifi ethernet paypal visa mastercard amex netflix spotify youtube facebook instagram twitter
tiktok linkedin reddit github gitlab bitbucket aws azure gcp heroku vercel cloudflare samsung huawei xiaomi sony
nintendo playstation xbox tesla toyota honda bmw audi ford mercedes volkswagen ibuprofen paracetamol acetaminophen
aspirin amoxicillin penicillin insulin metformin mercury venus mars jupiter saturn uranus neptune pluto 天津 重庆 广州
深圳 杭州 南京 武汉 成都 西安 苏州 长沙 沈阳 青岛 大连 厦门 宁波 无锡 济南 郑州 哈尔滨 昆明 福州 合肥 南昌 贵阳 南宁
太原 长春 石家庄 兰州 海口 三亚 拉萨 乌鲁木齐 呼和浩特 银川 西宁 香港 澳门 台北 河南 河北 山东 山西 陕西 湖南 湖北
广东 广西 江苏 江西 浙江 安徽 福建 四川 云南 贵州 海南 甘肃 青海 辽宁 吉林 黑龙江 内蒙古 新疆 西藏 宁夏 李白 杜甫 苏轼
白居易 王维 鲁迅 曹操 刘备 孙权 诸葛亮 秦始皇 孔子 孟子 老子 庄子 京东 拼多多 美团 滴滴 抖音 快手 微博 知乎 小红书
哔哩哔哩 腾讯 阿里巴巴 百度 字节跳动 华为 小米 中国银行 工商银行 建设银行 农业银行 招商银行 交通银行 中信银行 浦发银行
民生银行 顺丰 圆通 中通 申通 韵达 中国移动 中国联通 中国电信
"""

# name: the one that is compared
NAMES: Final[dict[str, str]] = {
    name: names[0] for group in _SAME.split() for names in [group.split("=")] for name in names
} | {
    name: name for name in _ALONE.split() if name not in {"spring", "word", "edge", "teams", "signal", "ford", "apple"}
}
PHRASES: Final = frozenset(name for name in NAMES if "_" in name)
# Names only where they are written with a capital: "polish" the table, send "us".
CAPITAL: Final = words(
    """
    us la polish swift rust ruby excel chrome oracle turkey flask zoom slack mercury discord edge windows telegram perl
    scala dart julia china java python reading nice
    """
)
# Capital letters that name nothing.
NOT_NAMES: Final = words(
    """
    i ok faq tv id pin sms app ceo gp atm diy asap vs etc mr mrs ms dr am pm
    """
)
