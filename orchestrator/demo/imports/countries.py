"""The two-letter country codes of ISO 3166-1, and the names and longer codes that people write instead."""

_CODES = """
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT
BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH
ER ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT
HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS
LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI
NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG
SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG
UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW
"""
CODES = frozenset(_CODES.split())

NAMES = {
    "austria": "AT", "aut": "AT", "österreich": "AT", "belgium": "BE", "bel": "BE", "belgië": "BE", "belgique": "BE",
    "bulgaria": "BG", "canada": "CA", "can": "CA", "croatia": "HR", "cyprus": "CY", "czechia": "CZ",
    "czech republic": "CZ", "denmark": "DK", "dnk": "DK", "danmark": "DK", "estonia": "EE", "finland": "FI",
    "fin": "FI", "suomi": "FI", "france": "FR", "fra": "FR", "germany": "DE", "deu": "DE", "ger": "DE",
    "deutschland": "DE", "greece": "GR", "grc": "GR", "hungary": "HU", "iceland": "IS", "ireland": "IE", "irl": "IE",
    "italy": "IT", "ita": "IT", "italia": "IT", "latvia": "LV", "lithuania": "LT", "luxembourg": "LU", "malta": "MT",
    "netherlands": "NL", "the netherlands": "NL", "holland": "NL", "nld": "NL", "norway": "NO", "nor": "NO",
    "norge": "NO", "poland": "PL", "pol": "PL", "polska": "PL", "portugal": "PT", "prt": "PT", "romania": "RO",
    "slovakia": "SK", "slovenia": "SI", "spain": "ES", "esp": "ES", "españa": "ES", "sweden": "SE", "swe": "SE",
    "sverige": "SE", "switzerland": "CH", "che": "CH", "schweiz": "CH", "suisse": "CH", "turkey": "TR",
    "uk": "GB", "u.k.": "GB", "united kingdom": "GB", "great britain": "GB", "england": "GB", "gbr": "GB",
    "usa": "US", "u.s.": "US", "u.s.a.": "US", "united states": "US", "united states of america": "US",
    "australia": "AU", "aus": "AU", "brazil": "BR", "bra": "BR", "china": "CN", "chn": "CN", "india": "IN",
    "ind": "IN", "japan": "JP", "jpn": "JP", "mexico": "MX", "mex": "MX", "new zealand": "NZ", "nzl": "NZ",
    "south africa": "ZA", "zaf": "ZA",
}  # fmt: skip
