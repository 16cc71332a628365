"""Words for the same: one in place of another is no swap. Only what is interchangeable in a question is here."""

from __future__ import annotations

from typing import Final

# a/b: each for each.
GROUPS: Final = """
price/cost/prices fee/charge/fees change/update/modify/edit/alter/amend delete/remove/erase buy/purchase
fix/repair/mend
begin/start/commence end/finish quick/fast/rapid big/large small/little film/movie flat/apartment holiday/vacation
phone/telephone mobile/cellphone/cell photo/picture/image/pic/photograph error/issue/problem/trouble
allow/permit/let get/receive/obtain help/assist/support happen/occur choose/select/pick contact/reach
need/require/must
shop/store lorry/truck rubbish/trash/garbage ill/sick/unwell trip/journey street/road delivery/shipping parcel/package
invoice/bill log_in/login/sign_in/signin sign_up/signup/register salary/wage/wages/pay lawyer/attorney/solicitor
vaccine/vaccination/jab medicine/medication doctor/physician country/nation bike/bicycle car/automobile
send/submit create/set_up/make show/display find/locate keep/retain fill/complete
reply/respond answer/response question/query ask/enquire/inquire try/attempt use/utilise/utilize wrong/incorrect
correct/right smart/intelligent/clever happy/glad angry/furious scared/frightened/afraid brave/courageous
important/essential common/frequent usual/normal/typical hard/difficult easy/simple whole/entire enough/sufficient
book/reserve booking/reservation cashpoint/atm checkout/till couch/sofa petrol/gasoline autumn/fall
pavement/sidewalk lift/elevator nappy/diaper queue/line form/application coverage/cover folder/directory
function/method repo/repository config/configuration settings/preferences docs/documentation password/passcode
colleague/coworker boss/manager employee/staff/worker staff/personnel tenant/renter customer/client
advice/tips/suggestions result/outcome reason/cause benefit/advantage downside/drawback/disadvantage
reset/forgot/recover/retrieve meaning/definition mean/signify difference/distinction kind/type/sort method/approach
修改/更改/变更/更换/改/换/调整 购买/买/选购 费用/价格/价钱/收费 退款/退钱 维修/修理/修/报修 提高/提升/增强
图片/照片 电脑/计算机
孩子/小孩/儿童/小朋友 手机号/手机号码/电话号码 删除/移除/删掉 忘记/忘了/重置/重设/找回 区别/不同/差别/差异 原因/理由
选择/选/挑选 申请/办理
快速/迅速 查询/查看/查
使用/用 联系/联络 寄送/邮寄/寄 快递/包裹 医生/大夫 服用/吃 一起/同时 锻炼/健身/运动 营业/开门 饭店/餐厅/餐馆
单词/词汇 学习/学 工资/薪水/薪资 失败/不成功 出现/发生 获取/获得/得到 创建/新建/建立 显示/展示 设置/设定
"""
