"""Records as they stand on invoices, receipts, forms and tables, made by chance and a seed.

A layout belongs to one issuer, whose name, bank account and currency are always the same; what a
customer buys, numbers, dates, amounts and people differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any

Record = Mapping[str, Any]

_FIRST = ("Anna", "Boris", "Chen", "Dilara", "Emeka", "Farah", "Goran", "Hana", "Ivo", "Jun")
_LAST = ("Abadi", "Berger", "Costa", "Duarte", "Eriksen", "Fischer", "Garcia", "Haddad", "Ito")
_FIRM = ("Northwind", "Kestrel", "Blauwerk", "Sanwa", "Orchard & Sons", "Meridian", "Tallinn Tools")
_KIND = ("Supply", "Logistics", "Paper", "Electric", "Foods", "Printing", "Optics", "Garden")
_STREET = ("Harbour Road", "Mill Lane", "Rue du Moulin", "Lindenstr.", "Via Roma", "High Street")
_CITY = ("Leeds", "Bremen", "Lyon", "Porto", "Gdansk", "Utrecht", "Malmö", "Graz", "Turku")
_THING = (
    *("desk lamp", "copper wire 2 mm", "toner black", "A4 paper 80 g", "usb cable", "filter bag"),
    *("hex bolt M8", "garden hose", "wall paint", "keyboard", "safety goggles", "steel shelf"),
)
_FOOD = (
    *("Espresso", "Oat milk 1l", "Rye bread", "Bananas", "Cheddar", "Tomato soup", "Green tea"),
    *("Olive oil", "Eggs x10", "Salmon fillet", "Basmati rice", "Dark chocolate"),
)


def invoice(random: random.Random) -> Record:
    """With seller, customer, and positions."""
    lines, net = _lines(random, _THING, 2, 5)
    issued = _day(random)
    tax = round(net * 0.19, 2)
    return {
        "invoice_number": f"{random.choice('RAK')}-{random.randint(2021, 2025)}-"
        f"{random.randint(1, 9999):04d}",
        "issue_date": issued.isoformat(),
        "due_date": (issued + timedelta(days=random.choice((14, 30)))).isoformat(),
        "seller": {"name": "Blauwerk Supply GmbH", "vat_id": "DE283771904"},
        "customer": {"name": _firm(random), "address": _address(random)},
        "line_items": lines,
        "net_amount": net,
        "tax_amount": tax,
        "total_amount": round(net + tax, 2),
        "currency": "EUR",
    }


def utility_bill(random: random.Random) -> Record:
    """Of consumption between two readings."""
    before, used = random.randint(1000, 90000), random.randint(80, 900)
    begin = _day(random)
    return {
        "account": str(random.randint(10**9, 10**10 - 1)),
        "customerName": _person(random),
        "serviceAddress": _address(random),
        "billingPeriod": {
            "from": begin.isoformat(),
            "to": (begin + timedelta(days=30)).isoformat(),
        },
        "meter": {
            "serial": f"E{random.randint(10**6, 10**7 - 1)}",
            "previousReading": before,
            "currentReading": before + used,
            "unit": "kWh",
        },
        "amountDue": round(used * 0.31, 2),
        "paid": random.random() < 0.3,
        "iban": "NL91 INGB 0417 1643 00",
    }


def shop_receipt(random: random.Random) -> Record:
    """Of a till."""
    lines, total = _lines(random, _FOOD, 3, 8)
    return {
        "store": f"Orchard & Sons, {random.choice(_STREET)}, Leeds",
        "date": _day(random).isoformat(),
        "time": f"{random.randint(8, 20):02d}:{random.randint(0, 59):02d}",
        "items": [
            {"name": one["description"], "qty": one["quantity"], "price": one["unit_price"]}
            for one in lines
        ],
        "subtotal": total,
        "tax": round(total * 0.07, 2),
        "total": round(total * 1.07, 2),
        "payment_method": random.choice(("card", "cash", "card")),
    }


def fuel_receipt(random: random.Random) -> Record:
    """Of a filling station."""
    litres, price = round(random.uniform(8, 60), 2), round(random.uniform(1.5, 1.95), 3)
    return {
        "station": f"Meridian {random.choice(_CITY)}",
        "pump": random.randint(1, 12),
        "fuel_type": random.choice(("Super E10", "Diesel", "Super 95")),
        "litres": litres,
        "price_per_litre": price,
        "total": round(litres * price, 2),
        "receipt_no": random.randint(10000, 99999),
        "timestamp": f"{_day(random).isoformat()}T{random.randint(6, 22):02d}:"
        f"{random.randint(0, 59):02d}:00",
    }


def patient_form(random: random.Random) -> Record:
    """As filled in at a practice."""
    return {
        "patient": {
            "last_name": random.choice(_LAST),
            "first_name": random.choice(_FIRST),
            "date_of_birth": date(
                random.randint(1940, 2010), random.randint(1, 12), 14
            ).isoformat(),
            "insurance_number": f"{random.choice('ABCX')}{random.randint(10**8, 10**9 - 1)}",
        },
        "contact": {
            "phone": f"+49 {random.randint(30, 999)} {random.randint(10**5, 10**7)}",
            "email": f"{random.choice(_LAST).lower()}{random.randint(1, 99)}@example.org",
            "address": _address(random),
        },
        "allergies": random.sample(("penicillin", "nuts", "latex", "pollen"), random.randint(0, 2)),
        "smoker": random.random() < 0.2,
        "medication": random.choice((None, None, "ibuprofen 400 mg", "metformin 500 mg")),
        "signed": True,
    }


def customs_form(random: random.Random) -> Record:
    """Of a parcel."""
    goods = [
        {
            "description": random.choice(_THING),
            "hs_code": f"{random.randint(1000, 9999)}.{random.randint(10, 99)}",
            "weight_kg": round(random.uniform(0.1, 12), 2),
            "value": random.randint(5, 400),
            "origin_country": random.choice(("DE", "CN", "IT", "JP")),
        }
        for _ in range(random.randint(1, 4))
    ]
    return {
        "sender": {"name": _person(random), "address": _address(random)},
        "recipient": {"name": _person(random), "address": _address(random)},
        "tracking_number": f"RB{random.randint(10**8, 10**9 - 1)}DE",
        "category": random.choice(("gift", "sale of goods", "documents")),
        "contents": goods,
        "declared_value": sum(one["value"] for one in goods),
    }


def staff_table(random: random.Random) -> Record:
    """Rows of people."""
    rows = [
        {
            "name": _person(random),
            "department": random.choice(("Sales", "Research", "Logistics", "Finance")),
            "room": f"{random.choice('ABC')}{random.randint(100, 499)}",
            "extension": random.randint(1000, 9999),
            "start_year": random.randint(1998, 2025),
        }
        for _ in range(random.randint(4, 8))
    ]
    return {"title": "Staff directory", "rows": rows}


def sales_table(random: random.Random) -> Record:
    """Rows as arrays under a header, as in a spreadsheet."""
    rows = []
    for city in random.sample(_CITY, random.randint(4, 8)):
        quarters = [random.randint(100, 99999) for _ in range(4)]
        rows.append([city, *quarters, sum(quarters)])
    return {"columns": ["Branch", "Q1", "Q2", "Q3", "Q4", "Total"], "unit": "EUR", "rows": rows}


MAKERS: Mapping[str, Callable[[random.Random], Record]] = {
    "invoice": invoice,
    "utility bill": utility_bill,
    "shop receipt": shop_receipt,
    "fuel receipt": fuel_receipt,
    "patient form": patient_form,
    "customs form": customs_form,
    "staff table": staff_table,
    "sales table": sales_table,
}


def _lines(
    random: random.Random, things: tuple[str, ...], least: int, most: int
) -> tuple[list[dict[str, Any]], float]:
    """Positions and their sum."""
    lines, net = [], 0.0
    for thing in random.sample(things, random.randint(least, most)):
        quantity, price = random.randint(1, 12), round(random.uniform(0.5, 120), 2)
        amount = round(quantity * price, 2)
        net = round(net + amount, 2)
        lines.append(
            {
                "description": thing,
                "quantity": quantity,
                "unit_price": price,
                "amount": amount,
            }
        )
    return lines, net


def _day(random: random.Random) -> date:
    return date(2024, 1, 1) + timedelta(days=random.randint(0, 600))


def _person(random: random.Random) -> str:
    return f"{random.choice(_FIRST)} {random.choice(_LAST)}"


def _firm(random: random.Random) -> str:
    return f"{random.choice(_FIRM)} {random.choice(_KIND)} {random.choice(('GmbH', 'Ltd', 'BV'))}"


def _address(random: random.Random) -> str:
    return (
        f"{random.choice(_STREET)} {random.randint(1, 150)}, {random.randint(10000, 99999)} "
        f"{random.choice(_CITY)}"
    )
