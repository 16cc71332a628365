"""Groups of words of which a question means one: what is asked about the one does not answer the other."""

from __future__ import annotations

from typing import Final

# A line is a group; / joins words for the same.
_GROUPS: Final = """
breakfast/早餐/早饭 lunch/午餐/午饭 dinner/supper/晚餐/晚饭 brunch
red/红色 blue/蓝色 green/绿色 yellow/黄色 black/黑色 white/白色 orange/橙色 purple/紫色 pink/粉色 brown/棕色 \
grey/gray/灰色
cat/kitten/猫 dog/puppy/狗 rabbit/兔子 hamster/仓鼠 parrot/鹦鹉 fish/鱼 turtle/乌龟 snake/蛇 horse/马匹 cow/牛 pig/猪 \
sheep/羊 goat chicken/鸡 duck/鸭
beef/牛肉 pork/猪肉 lamb/羊肉 chicken/鸡肉 turkey salmon/三文鱼 tuna shrimp/prawn/虾 tofu/豆腐
rice/米饭 pasta/意面 noodle/面条 bread/面包 potato/土豆 quinoa oat/燕麦
apple/苹果 banana/香蕉 orange/橙子 grape/葡萄 strawberry/草莓 mango/芒果 pear/梨 peach/桃子 cherry watermelon/西瓜
coffee/咖啡 tea/茶 milk/牛奶 beer/啤酒 wine/红酒 whisky/whiskey vodka juice/果汁
gold/黄金 silver/白银 copper/铜 iron/铁 aluminium/aluminum/铝 steel/钢 platinum bronze
kilometre/kilometer/km/公里 mile/英里 metre/meter foot/feet/英尺 inch/英寸 yard centimetre/centimeter/cm/厘米 \
millimetre/millimeter/毫米
kilogram/kilo/kg/公斤/千克 pound/lb/磅 ounce/oz/盎司 gram/克 tonne/吨 stone
litre/liter/升 gallon/加仑 pint millilitre/milliliter/ml/毫升 cup tablespoon teaspoon
celsius/centigrade/摄氏 fahrenheit/华氏 kelvin
dollar/usd/美元 euro/eur/欧元 gbp/sterling/英镑 yen/jpy/日元 yuan/rmb/cny/人民币 rupee/inr/卢比 franc won/krw/韩元
head/头 neck/脖子 shoulder/肩膀 arm/手臂 elbow hand/手 finger/手指 chest/胸 back/背 stomach/肚子 hip leg/腿 knee/膝盖 \
ankle/脚踝 foot/脚 toe nose/鼻子 ear/耳朵 eye/眼睛 throat/喉咙 tooth/牙齿
heart/心脏 liver/肝 kidney/肾 lung/肺 brain/大脑 skin/皮肤
mother/mum/mom/妈妈/母亲 father/dad/爸爸/父亲 brother/弟弟/哥哥 sister/姐姐/妹妹 grandmother/奶奶/外婆 \
grandfather/爷爷/外公 uncle/叔叔/舅舅 aunt/阿姨 cousin
husband/老公/丈夫 wife/老婆/妻子
baby/infant/toddler/婴儿/宝宝 child/kid/儿童/小孩/孩子 teenager/teen/青少年 adult/成人/成年人 senior/pensioner/老人/老年人
pregnant/孕妇/怀孕 breastfeeding/哺乳期
student/学生 teacher/老师 employee/员工 manager/经理 freelancer/自由职业 contractor intern/实习生 landlord/房东 \
tenant/租客
football/soccer/足球 basketball/篮球 tennis/网球 golf/高尔夫 cricket rugby baseball/棒球 volleyball/排球 \
badminton/羽毛球 hockey
guitar/吉他 piano/钢琴 violin/小提琴 drum/鼓 flute/长笛 trumpet
car/汽车 motorcycle/motorbike/摩托车 bicycle/bike/自行车 bus/公交 train/火车 plane/flight/飞机 boat ship/轮船 tram \
taxi/出租车 van truck/lorry/卡车
flat/apartment house villa/别墅 studio hotel/酒店 hostel/青旅 campsite
office/办公室 home/家里 shop/store/商店 school/学校 hospital/医院 airport/机场 station/车站 library/图书馆 \
museum/博物馆 gym/健身房 pool/泳池
email/e-mail/邮件/邮箱 phone/telephone/电话 sms/短信 post chat address/地址
password/密码 username/用户名 pin address/地址 name/姓名
delivery/配送 billing/账单 home work
debit credit prepaid/预付
mortgage/房贷 loan/贷款 overdraft credit-card/信用卡
savings/储蓄 current checking joint
ios/iphone android mac/macos windows linux
basic/基础版 standard/标准版 premium/高级版 pro/专业版 enterprise/企业版 free/免费版 plus business
personal/个人 business/企业 commercial/商业 family/家庭 student group/团体
economy/经济舱 business/商务舱 first-class/头等舱
bachelor/本科 master/硕士 doctorate/phd/博士
primary/小学 secondary/初中 university/college/大学 kindergarten/nursery/幼儿园
gas/天然气 electricity/电费/电力 water/水费 broadband/宽带 petrol/gasoline/汽油 diesel/柴油
car/车险 home travel/旅行 life/寿险 health/medical/医疗 pet dental
monthly annual/yearly weekly daily
flu/流感 cold/感冒 covid/新冠 measles/麻疹 rabies/狂犬病 hepatitis/肝炎 diabetes/糖尿病 asthma/哮喘 cancer/癌症 \
migraine/偏头痛 depression/抑郁症 anxiety/焦虑症
vitamin/维生素 iron calcium/钙 zinc/锌 magnesium/镁
lawyer/律师 doctor/医生 dentist/牙医 accountant/会计 engineer/工程师 nurse/护士 plumber electrician/电工
create/创建 read/读取 update/更新 delete/删除
list tuple dict/dictionary set array/数组 string/字符串 integer/整数 float/浮点数
table column/列 row/行 index/索引 view/视图 schema
copy move rename delete
sum/求和 average/mean/平均值 median/中位数 maximum/最大值 minimum/最小值 count/计数
sine cosine tangent
north/北 south/南 east/东 west/西
add subtract multiply divide
england scotland wales ireland
"""

# word: the groups it is in, each with the member it stands for
MEMBERS: Final[dict[str, dict[int, str]]] = {}
for _number, _line in enumerate(_GROUPS.strip().splitlines()):
    for _member in _line.split():
        for _word in _member.split("/"):
            MEMBERS.setdefault(_word, {})[_number] = _member.partition("/")[0]
