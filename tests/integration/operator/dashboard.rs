//! Every expression of `packaging/grafana/dashboard.json` has a result in Prometheus, given a server's exported series.

use super::alerts::promtool;
use super::watching::{exported, server_with_percentiles, values_of};
use serde_json::{json, Value};
use std::fs;
use testkit::install;
use testkit::{project_file, skipped, temp_dir};

/// The expressions, with Grafana's values for its variables.
pub fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&project_file("packaging/grafana/dashboard.json")).expect("JSON");
    let texts = values_of(&dashboard, "expr").into_iter();
    let texts = texts.map(|text| serde_json::from_str::<String>(&text).expect("a string"));
    texts.map(|text| text.replace("$__rate_interval", "5m").replace("$instance", ".*")).collect()
}

#[test]
fn every_expression_of_the_dashboard_has_a_result() {
    let program = match install::promtool() {
        Ok(program) => program,
        Err(why) => return skipped("the dashboard in Prometheus", &why.replace('\n', "; ")),
    };
    let (_server, mut conn) = server_with_percentiles();
    let series = exported(&mut conn).into_iter().map(|(name, _)| {
        let series = format!("redis_script_values{{job=\"redis\", instance=\"here:6379\", key=\"{name}\"}}");
        json!({"series": series, "values": "1+1x30"})
    });
    let series: Vec<Value> = series.collect();
    let expressions = expressions();
    assert!(expressions.len() > 40, "{expressions:?}");
    // JSON is YAML. Each expression is recorded under its own name.
    let recorded = |(number, text): (usize, &String)| json!({"record": format!("shown:{number}"), "expr": text});
    let rules: Vec<Value> = expressions.iter().enumerate().map(recorded).collect();
    let has_result = |number: usize| {
        let samples = json!([{"labels": "{}", "value": 1}]);
        json!({"expr": format!("count(shown:{number}) > bool 0"), "eval_time": "30m", "exp_samples": samples})
    };
    let results: Vec<Value> = (0..expressions.len()).map(has_result).collect();
    let dir = temp_dir();
    let write = |name: &str, value: Value| fs::write(dir.join(name), value.to_string()).unwrap();
    write("rules.yml", json!({"groups": [{"name": "dashboard", "rules": rules}]}));
    let case = json!({"interval": "1m", "input_series": series, "promql_expr_test": results});
    write("tests.yml", json!({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]}));
    let said = promtool(&program, &["test", "rules", dir.join("tests.yml").to_str().unwrap()]);
    let _ = fs::remove_dir_all(&dir);
    said.unwrap_or_else(|said| panic!("{said}\n{expressions:#?}"));
}
