"""Opposites beside WordNet's: what applications do and undo, and Chinese."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.tables.words import words

# a/b; of more than two, each is the opposite of each.
ENGLISH: Final = """
enable/disable activate/deactivate upload/download subscribe/unsubscribe install/uninstall mute/unmute lock/unlock
follow/unfollow block/unblock allow/ban/forbid/prohibit/block/deny permit/prohibit/ban allowed/banned
open/closed/shut/close increase/decrease/reduce/lower raise/lower/reduce/cut maximum/minimum max/min maximise/minimise
maximize/minimize more/less/fewer most/least highest/lowest high/low higher/lower best/worst better/worse
biggest/smallest largest/smallest big/small large/small bigger/smaller larger/smaller longest/shortest long/short
longer/shorter fast/slow faster/slower fastest/slowest cheap/expensive cheaper/dearer/pricier
cheapest/dearest/priciest early/late earlier/later earliest/latest first/last newest/oldest new/old newer/older
buy/sell lend/borrow import/export send/receive sender/recipient deposit/withdraw deposit/withdrawal credit/debit
income/expense profit/loss gain/lose win/lose start/stop begin/end start/end start/finish begin/finish continue/stop
pause/resume connect/disconnect attach/detach include/exclude included/excluded accept/reject/decline/refuse
approve/reject/deny add/remove/delete create/delete/destroy insert/delete/remove encrypt/decrypt encode/decode
compress/decompress zip/unzip serialize/deserialize push/pull ascending/descending asc/desc ascend/descend above/below
over/under inside/outside indoor/outdoor indoors/outdoors internal/external inbound/outbound incoming/outgoing
import/export arrival/departure arrive/depart arrive/leave entrance/exit enter/exit/leave front/back top/bottom
left/right north/south east/west northern/southern eastern/western upper/lower horizontal/vertical public/private
online/offline local/remote domestic/international personal/business synchronous/asynchronous sync/async
static/dynamic mutable/immutable client/server frontend/backend input/output legal/illegal/unlawful/banned/prohibited
lawful/illegal/unlawful/prohibited safe/unsafe/dangerous healthy/unhealthy good/bad pros/cons advantage/disadvantage
benefit/drawback benefit/risk benefit/disadvantage strength/weakness cause/effect cause/cure cause/prevent
cause/treatment visible/hidden show/hide expand/collapse zoom_in/zoom_out turn_on/turn_off switch_on/switch_off
log_in/log_out sign_in/sign_out opt_in/opt_out check_in/check_out clock_in/clock_out put_on/take_off
scroll_up/scroll_down pick_up/drop_off turn_up/turn_down move_in/move_out plug_in/unplug hot/cold warm/cool wet/dry
hard/soft hard/easy difficult/easy heavy/light thick/thin thin/fat wide/narrow deep/shallow full/empty strong/weak
rich/poor young/old male/female men/women man/woman boy/girl king/queen husband/wife mother/father mum/dad mom/dad
mummy/daddy brother/sister son/daughter uncle/aunt adult/child adults/children employer/employee landlord/tenant
lender/borrower buyer/seller buyer/vendor parent/child teacher/student doctor/patient full_time/part_time
employed/self_employed/unemployed full/partial full/part day/night morning/evening birth/death live/die alive/dead
married/single/divorced true/false yes/no positive/negative success/failure succeed/fail pass/fail present/absent
same/different similar/different love/hate like/dislike like/hate friend/enemy remember/forget agree/disagree
appear/disappear tighten/loosen freeze/thaw melt/freeze boil/freeze inhale/exhale sink/float push/pull lead/follow
attack/defend build/demolish grow/shrink gain/loss inflation/deflation surplus/deficit majority/minority
vegetarian/meat raw/cooked sweet/sour sweet/savoury sugar/salt sunrise/sunset summer/winter single/double single/joint
manual/automatic prepaid/postpaid fixed/variable gross/net retail/wholesale primary/secondary required/optional
mandatory/optional compulsory/voluntary temporary/permanent free/paid taxable/exempt refundable/nonrefundable
upgrade/downgrade promote/demote hire/fire hired/fired marry/divorce claim/waive save/spend save/waste
dehydrate/hydrate gluten/glutenless always/never everyone/nobody all/none with/without encourage/discourage
approve/claim print/scan lossy/lossless odd/even smooth/rough loud/quiet sharp/blunt clean/dirty
optimistic/pessimistic humble/proud polite/rude happy/sad/unhappy hopeful/hopeless
"""

CHINESE: Final = """
开启/关闭 打开/关闭/关上 启用/禁用/停用 开通/关闭/注销/取消 开/关 允许/禁止/不准 订阅/退订 关注/取关 上传/下载
安装/卸载 升序/降序 增加/减少/降低 增大/减小 提高/降低 上升/下降 升高/降低 上涨/下跌 涨价/降价 涨/跌/降 升级/降级
升/降 放大/缩小 加速/减速 加/减 乘/除 变大/变小 扩大/缩小 变快/变慢 快/慢 大/小 多/少 高/低 长/短 远/近 轻/重 厚/薄
宽/窄 深/浅 粗/细 胖/瘦 冷/热 干/湿 软/硬 松/紧 新/旧 好/坏 优点/缺点 优势/劣势 好处/坏处 利/弊 利好/利空 最大/最小
最高/最低 最多/最少 最长/最短 最快/最慢 最好/最差 最早/最晚 最贵/最便宜 贵/便宜 早/晚 买/卖 买入/卖出 购买/出售/卖
借入/借出 贷款/存款 存款/取款 存入/取出 收入/支出 盈利/亏损 赚/亏 赢/输 进口/出口 入口/出口 进/出 输入/输出 流入/流出
转入/转出 发送/接收 发/收 寄/收 入境/出境 入职/离职 入住/退房 登录/退出/注销 登入/登出 加入/退出 进入/离开 上车/下车
上班/下班 上架/下架 上线/下线 线上/线下 在线/离线 上/下 左/右 前端/后端 前台/后台 东/西 南/北 里/外 内/外 以内/以外
室内/室外 国内/国外 以上/以下 超过/低于 大于/小于 开始/结束/停止 启动/停止/关闭 继续/停止/暂停 暂停/恢复 连接/断开
绑定/解绑 锁定/解锁 冻结/解冻 拉黑/解除拉黑 屏蔽/解除屏蔽 加密/解密 压缩/解压 编码/解码 序列化/反序列化 添加/删除/移除
新增/删除 创建/删除 插入/删除 显示/隐藏 展开/收起/折叠 同步/异步 静态/动态 公开/私密 公有/私有 公网/内网
同意/拒绝/反对 接受/拒绝 通过/拒绝/驳回 支持/反对 成功/失败 正确/错误 真/假 是/否 有/无 正/负 阳性/阴性 正数/负数
奇数/偶数 升温/降温 安全/危险 合法/违法/非法 健康/有害 有益/有害 男/女 男性/女性 男生/女生 男士/女士 父亲/母亲
爸爸/妈妈 哥哥/弟弟 姐姐/妹妹 儿子/女儿 丈夫/妻子 成人/儿童 成年/未成年 老人/儿童 大人/小孩 房东/租客/房客 买家/卖家
甲方/乙方 雇主/雇员 老板/员工 老师/学生 医生/病人 白天/晚上/夜里 早上/晚上 上午/下午 日出/日落 夏天/冬天 夏季/冬季
春天/秋天 出生/死亡 生/死 结婚/离婚 已婚/未婚 全职/兼职 全额/部分 免费/收费/付费 自动/手动 有线/无线 定期/活期
固定/浮动 税前/税后 毛利/净利 批发/零售 必填/选填 必须/可选 永久/临时 长期/短期 单人/双人 单程/往返 增肥/减肥
增重/减重 增肌/减脂 便秘/腹泻 高血压/低血压 高血糖/低血糖 偏高/偏低 过快/过慢 过多/过少 充值/提现 缴纳/退还 缴费/退费
缴税/退税 付款/退款/收款 发货/退货/收货 借/还 横向/纵向 水平/垂直 顺时针/逆时针 正向/反向 主动/被动 起飞/降落
出发/到达 去程/返程 熔化/凝固 吸气/呼气 记住/忘记 喜欢/讨厌 表扬/批评 奖励/惩罚 晴天/雨天 增值/贬值 升值/贬值
通胀/通缩 顺差/逆差 顺序/倒序/逆序 正序/倒序 复制/剪切 读取/写入 读/写 编译/反编译 提前/推迟 延长/缩短 首次/末次
第一/最后
"""

# Particles that oppose one another, and the verbs that take them: "turn the light off" is turn_off.
PARTICLES: Final = words(
    """
    on off in out up down
    """
)
VERBS: Final = words(
    """
    turn switch set log sign opt check clock put take scroll zoom move pick drop plug fade phase roll scale speed slow
    """
)
# Words WordNet gives an opposite that are too many things in a question: "have/lack", "here/there", "do", "man".
IGNORED: Final = words(
    """
    have do be get go come need take give make here there this that some other few little much use work know find lose
    show hold keep leave stay stand be say back sound just well still present matter mean back top
    """
)
