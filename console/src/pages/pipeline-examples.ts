// Pipelines to begin with, as YAML.

export interface Example {
  title: string;
  does: string;
  text: string;
}

function manifest(space: string, namespace: string, name: string, spec: string): string {
  return `apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata:
  name: ${space}.${name}
  namespace: ${namespace}
spec:
${spec}`;
}

export function examples(space: string, namespace: string, stream: string, alerts: string): Example[] {
  const source = `  sources:
    - name: readings
      address: ${stream}
      format: json
      schema: device STRING, temperature DOUBLE, ts TIMESTAMP`;
  return [
    {
      title: "Stream to table",
      does: "Every message of a stream becomes a row, exactly once.",
      text: manifest(space, namespace, "keep", `${source}\n  sinks:\n    - table: readings\n`),
    },
    {
      title: "Windows",
      does: "The mean of each minute and device, once the minute is over.",
      text: manifest(
        space,
        namespace,
        "minutes",
        `${source}
      watermark: {column: ts, delay: 10s}
  steps:
    - name: minutes
      sql: |
        SELECT window(ts, '1 minute').start AS begin, device, avg(temperature) AS mean, count(*) AS readings
        FROM readings GROUP BY window(ts, '1 minute'), device
  sinks:
    - table: minutes
`,
      ),
    },
    {
      title: "Alerts",
      does: "Readings that are too hot go to an address, as messages.",
      text: manifest(
        space,
        namespace,
        "hot",
        `${source}
  steps:
    - name: hot
      sql: |
        SELECT device, temperature, concat(device, ' is too hot: ', temperature) AS text
        FROM readings WHERE temperature > 30
  sinks:
    - input: hot
      address: ${alerts}
`,
      ),
    },
  ];
}
