import { Bullseye, Button, Spinner } from "@patternfly/react-core";
import { Component, lazy, type ReactElement, type ReactNode, Suspense } from "react";
import { BrowserRouter, Link, Navigate, Route, Routes, useLocation } from "react-router";
import { isBack, setReach } from "../api/state";
import { Confirming } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { PageFrame } from "../parts/frame";
import { Palette } from "./palette";
import { type ConsolePage, pages, SPACE } from "./pages";
import { Shell } from "./shell";
import { Theming } from "./theme";

/** Loads a page, and once more when the API is back, if it was away. */
async function loaded(load: ConsolePage["load"]): ReturnType<ConsolePage["load"]> {
  try {
    return await load();
  } catch {
    setReach({ here: false });
    await isBack();
    return load();
  }
}

const shown = pages.map((page) => ({ path: page.path, Page: lazy(() => loaded(page.load)) }));

/** A page that broke says so, and leaves the others usable. */
class Guard extends Component<{ children: ReactNode; at: string }, { error?: Error; at: string }> {
  override state: { error?: Error; at: string } = { at: this.props.at };

  static getDerivedStateFromError(error: Error): { error: Error } {
    return { error };
  }

  static getDerivedStateFromProps(props: { at: string }, state: { at: string }): { error?: Error; at: string } | null {
    return props.at === state.at ? null : { error: undefined, at: props.at };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <PageFrame title="This page does not work">
        <Teach title="This page does not work" actions={<Button onClick={() => window.location.reload()}>Load it again</Button>}>
          {error.message}
        </Teach>
      </PageFrame>
    );
  }
}

function Nowhere(): ReactElement {
  return (
    <PageFrame title="No such page">
      <Teach title="There is no such page" actions={<Link to="/">To the start page</Link>}>
        The address may be mistyped, or from another version.
      </Teach>
    </PageFrame>
  );
}

function Content(): ReactElement {
  const { pathname } = useLocation();
  return (
    <Guard at={pathname}>
      <Suspense fallback={<Bullseye><Spinner aria-label="Loading" /></Bullseye>}>
        <Routes>
          {shown.map(({ path, Page }) => (
            <Route key={path} path={path} element={<Page />} />
          ))}
          <Route path={SPACE} element={<Navigate to="addresses" replace />} />
          <Route path="*" element={<Nowhere />} />
        </Routes>
      </Suspense>
    </Guard>
  );
}

export function Console(): ReactElement {
  return (
    <Theming>
      <BrowserRouter basename="/console">
        <Confirming>
          <Shell palette={(open, close) => open && <Palette close={close} />}>
            <Content />
          </Shell>
        </Confirming>
      </BrowserRouter>
    </Theming>
  );
}
