//! A dashboard for Grafana.

use serde_json::{Value, json};

use super::table::{PANELS, Panel};

/// The width of a dashboard in Grafana's units, and the size of a panel.
const WIDTH: u64 = 24;
const PANEL: (u64, u64) = (8, 8);

pub(crate) fn dashboard() -> Value {
    json!({
        "uid": "fleetwright",
        "title": "Fleetwright",
        "tags": ["fleetwright"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [
            {"name": "source", "label": "Data source", "type": "datasource",
                "query": "prometheus"},
            {"name": "pool", "label": "Pool", "type": "query", "refresh": 2, "sort": 1,
                "multi": true, "includeAll": true, "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
                "datasource": source(),
                "query": {"query": "label_values(fleetwright_capacity_maximum, workerPoolId)",
                    "refId": "pools"}},
        ]},
        "panels": panels(),
    })
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${source}"})
}

/// Row after row, each panel beside or below the one before.
fn panels() -> Vec<Value> {
    let (mut shown, mut id) = (Vec::new(), 0_u64);
    let (mut x, mut y, mut row) = (0, 0, "");
    let (width, height) = PANEL;
    for panel in PANELS {
        if panel.row != row {
            if x > 0 {
                (x, y) = (0, y + height);
            }
            row = panel.row;
            id += 1;
            shown.push(
                json!({"id": id, "type": "row", "title": row, "collapsed": false,
                "panels": [], "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}}),
            );
            y += 1;
        }
        id += 1;
        let place = json!({"x": x, "y": y, "w": width, "h": height});
        shown.push(shown_panel(panel, id, &place));
        x += width;
        if x + width > WIDTH {
            (x, y) = (0, y + height);
        }
    }
    shown
}

fn shown_panel(panel: &Panel, id: u64, place: &Value) -> Value {
    let numbered = panel.queries.iter().zip('A'..='Z');
    let targets: Vec<Value> = numbered
        .map(|((legend, query), letter)| {
            json!({"refId": letter.to_string(), "datasource": source(), "expr": query,
                "legendFormat": legend})
        })
        .collect();
    let stacking = if panel.is_stacked { "normal" } else { "none" };
    let fill = if panel.is_stacked { 20 } else { 0 };
    json!({
        "id": id,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": source(),
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": {
            "unit": panel.unit,
            "min": 0,
            "custom": {"fillOpacity": fill, "stacking": {"mode": stacking, "group": "A"}},
        }, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"}},
    })
}
