import { Button, ClipboardCopyButton, CodeBlock, CodeBlockAction, CodeBlockCode, Tab, Tabs, TabTitleText } from "@patternfly/react-core";
import DownloadIcon from "@patternfly/react-icons/dist/esm/icons/download-icon";
import { type ReactElement, type ReactNode, useId, useState } from "react";
import { stringify } from "yaml";

export function yamlOf(object: unknown): string {
  return stringify(object, { lineWidth: 0 });
}

export function download(name: string, text: string | Blob, type = "text/plain"): void {
  const url = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

/** Text to be copied. */
export function Code({ text, file }: { text: string; file?: string }): ReactElement {
  const id = useId();
  const [copied, setCopied] = useState(false);
  return (
    <CodeBlock
      actions={
        <CodeBlockAction>
          {file && <Button variant="plain" aria-label={`Download ${file}`} icon={<DownloadIcon />} onClick={() => download(file, text)} />}
          <ClipboardCopyButton
            id={`copy-${id}`}
            textId={id}
            aria-label="Copy"
            variant="plain"
            onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}
            onTooltipHidden={() => setCopied(false)}
          >
            {copied ? "Copied" : "Copy"}
          </ClipboardCopyButton>
        </CodeBlockAction>
      }
    >
      <CodeBlockCode id={id}>{text}</CodeBlockCode>
    </CodeBlock>
  );
}

/** The same text in several forms, one shown at a time. */
export function CodeTabs({ tabs, label }: { tabs: { name: string; text: string; file?: string; note?: ReactNode }[]; label: string }): ReactElement {
  const [chosen, setChosen] = useState(0);
  return (
    <Tabs activeKey={chosen} onSelect={(_, key) => setChosen(Number(key))} aria-label={label} isBox={false}>
      {tabs.map((tab, index) => (
        <Tab key={tab.name} eventKey={index} title={<TabTitleText>{tab.name}</TabTitleText>}>
          {index === chosen && (
            <>
              {tab.note}
              <Code text={tab.text} file={tab.file} />
            </>
          )}
        </Tab>
      ))}
    </Tabs>
  );
}

/** What a form amounts to: a manifest and a command. */
export function Amounts({ manifest, command }: { manifest: unknown; command: string }): ReactElement {
  return (
    <CodeTabs
      label="What this amounts to"
      tabs={[
        { name: "YAML", text: yamlOf(manifest), file: "manifest.yaml" },
        { name: "Command line", text: command },
      ]}
    />
  );
}

/** Quotes a word for a shell where it needs it. */
export function shell(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
